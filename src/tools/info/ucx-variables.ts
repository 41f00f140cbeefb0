/** `info -c -a`: the variables of C UCX that no field reads, in groups with the reason. Comments: the output reads back as a configuration. */

import { UCX_VARIABLE_GROUPS, UCX_VARIABLES_VERSION, type UcxVariableGroup } from '../../libucx/c/ucx-variables.ts';
import type { UnusedVariable } from '../../ucs/config/config.ts';

const TITLES: Readonly<Record<UcxVariableGroup['use'], string>> = {
  none: 'without meaning here',
  refused: 'refused unless they change nothing',
};

/** The text. @param unused variables that are set; their values are shown @param filter only names that contain it */
export function ucxVariablesText(unused: readonly UnusedVariable[], filter = ''): string {
  const values = new Map(unused.map(({ variable, text }) => [variable, text]));
  const parts = UCX_VARIABLE_GROUPS.flatMap(({ use, reason, names }) => {
    const lines = names
      .map((name) => `UCX_${name}`)
      .filter((name) => name.includes(filter))
      .map((name) => `# ${name}${values.has(name) ? `=${values.get(name)}` : ''}`);
    return lines.length === 0
      ? []
      : ['#', `# variables of C UCX ${UCX_VARIABLES_VERSION} ${TITLES[use]}: ${reason}`, ...lines];
  });
  return parts.join('\n');
}
