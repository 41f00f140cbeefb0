import { describe, expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { ManualClock } from '../sys/clock.ts';
import { LimitedLog, WARNINGS_MAX, WINDOW_NS } from './limited-log.ts';
import { LogLevel } from './log.ts';

describe('a limited log', () => {
  it('writes a limited number of warnings in a window, then the number of the others', () => {
    const test = createTestLog();
    const clock = new ManualClock();
    const log = new LimitedLog(test.log, clock);
    const written = (): string[] => test.records.map(({ message }) => message);
    for (let i = 0; i < WARNINGS_MAX + 3; i++) log.warn(`warning ${i}`);
    expect(written()).toHaveLength(WARNINGS_MAX);
    expect(written().at(-1)).toBe(`warning ${WARNINGS_MAX - 1}`);
    clock.advance(WINDOW_NS - 1);
    log.warn('one too many');
    expect(written()).toHaveLength(WARNINGS_MAX);
    clock.advance(1);
    log.warn('in the next while');
    expect(written().slice(WARNINGS_MAX)).toEqual(['4 more warnings about peers were left out', 'in the next while']);
    log.reportOmitted();
    expect(written()).toHaveLength(WARNINGS_MAX + 2);
    log.diag('of no concern');
    expect(written().at(-1)).toBe('of no concern');
  });

  it('writes each line at its level', () => {
    const test = createTestLog();
    const log = new LimitedLog(test.log, new ManualClock());
    log.warn('one');
    log.error('two');
    log.debug('three');
    expect(test.records.map(({ level, message }) => [level, message])).toEqual([
      [LogLevel.WARN, 'one'],
      [LogLevel.ERROR, 'two'],
      [LogLevel.DEBUG, 'three'],
    ]);
  });
});
