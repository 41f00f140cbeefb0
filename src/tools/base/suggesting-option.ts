/** Options with values for shell completion that commander does not check. */

import { Option } from 'commander';

const suggestions = new WeakMap<Option, readonly string[]>();

/** Makes an option with `values` for shell completion. */
export function suggestingOption(flags: string, description: string, values: readonly string[]): Option {
  const option = new Option(flags, description);
  suggestions.set(option, values);
  return option;
}

/** Values for shell completion of an option; undefined if file names are completed. */
export function suggestedValues(option: Option): readonly string[] | undefined {
  return suggestions.get(option) ?? option.argChoices;
}
