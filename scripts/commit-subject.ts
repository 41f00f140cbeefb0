/** The form of the subjects of commits, for the hook in .githooks: `tsx scripts/commit-subject.ts FILE` reads a message. */

import { readFileSync } from 'node:fs';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const LENGTH_MAX = 72;
const FORM = /^[A-Z0-9][A-Z0-9.-]*(?:\/[A-Z0-9.-]+)*(?:, [A-Z0-9.-]+(?:\/[A-Z0-9.-]+)*)*: ([A-Z]\S*)/;
/** Git writes these subjects. */
const OF_GIT = /^(Merge |Revert "|fixup! |squash! )/;
/** A first word with this end is not an imperative. */
const OTHER_MOOD = /(ed|ing)$/;
const IMPERATIVES: ReadonlySet<string> = new Set([
  'Embed',
  'Exceed',
  'Feed',
  'Need',
  'Proceed',
  'Seed',
  'Speed',
  'Bring',
  'Ping',
  'String',
]);

/** The rule that a subject violates; undefined for a good one. */
export function subjectFault(subject: string): string | undefined {
  if (OF_GIT.test(subject)) return undefined;
  const [, verb] = FORM.exec(subject) ?? [];
  if (verb === undefined) return 'must have the form LAYER/PART: Imperative summary';
  if (OTHER_MOOD.test(verb) && !IMPERATIVES.has(verb)) return `must begin with an imperative, is ${verb}`;
  if (subject.length > LENGTH_MAX) return `must have at most ${LENGTH_MAX} characters, has ${subject.length}`;
  return subject.endsWith('.') ? 'must not end with a full stop' : undefined;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const [subject = ''] = readFileSync(argv[2]!, 'utf8').split('\n');
  const fault = subjectFault(subject);
  if (fault !== undefined) {
    console.error(`the subject of the commit ${fault}: ${subject} (see CONTRIBUTING.md)`);
    process.exitCode = 1;
  }
}
