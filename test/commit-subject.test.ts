/** The form of the subjects of commits, and the hook that checks it. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { subjectFault } from '../scripts/commit-subject.ts';

const ROOT = join(import.meta.dirname, '..');

describe('the subject of a commit', () => {
  it.each([
    'UCT/TCP: Send short frames together',
    'UCP, LIBUCX/C: Name the missing function',
    'DOCS: Wrap pages at 110 characters',
    'UCS: Seed the random source',
    'Merge branch of a reviewer',
    'Revert "UCT/TCP: Send short frames together"',
  ])('may be: %s', (subject) => {
    expect(subjectFault(subject)).toBeUndefined();
  });

  it.each([
    ['tcp: Send short frames', 'must have the form LAYER/PART: Imperative summary'],
    ['UCT/TCP: send short frames', 'must have the form LAYER/PART: Imperative summary'],
    ['Send short frames', 'must have the form LAYER/PART: Imperative summary'],
    ['UCT/TCP: Adding a test', 'must begin with an imperative, is Adding'],
    ['UCT/TCP: Fixed the test', 'must begin with an imperative, is Fixed'],
    [`UCT/TCP: Send ${'x'.repeat(60)}`, 'must have at most 72 characters, has 74'],
    ['UCT/TCP: Send short frames.', 'must not end with a full stop'],
  ])('must not be: %s', (subject, fault) => {
    expect(subjectFault(subject)).toBe(fault);
  });
});

describe('the hook', () => {
  let folder = '';
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'commit-'));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  it.each([
    ['UCT/TCP: Send short frames together\n\nWhy.\n', 0, ''],
    [
      'Some changes\n',
      1,
      'the subject of the commit must have the form LAYER/PART: Imperative summary: Some changes (see CONTRIBUTING.md)\n',
    ],
  ])('reads %j', (message, code, printed) => {
    const file = join(folder, 'COMMIT_EDITMSG');
    writeFileSync(file, message);
    const { status, stderr } = spawnSync(join(ROOT, '.githooks/commit-msg'), [file], { cwd: ROOT, encoding: 'utf8' });
    expect([status, stderr]).toEqual([code, printed]);
  });
});
