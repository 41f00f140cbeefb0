/** Values that an option suggests for completion, where the command checks them itself. */

import { Option } from 'commander';

const suggestions = new WeakMap<Option, readonly string[]>();

/** An option whose value is completed with these words. */
export function suggestingOption(flags: string, description: string, values: readonly string[]): Option {
  const option = new Option(flags, description);
  suggestions.set(option, values);
  return option;
}

/** The values of an option; undefined if there are no such: file names are completed then. */
export function suggestedValues(option: Option): readonly string[] | undefined {
  return suggestions.get(option) ?? option.argChoices;
}
