/** When a client gives up a stopped node server: after a time of looks that all found it stopped, and never because it is slow. */

import { describe, expect, it } from 'vitest';
import { ServerWatch } from './server-watch.ts';

/** Looks every 100 ms of the time in which the process is in a state: the time of the look that gives it up, in seconds. */
function givenUpAfter(states: readonly (readonly [isStopped: boolean, seconds: number])[]): number | undefined {
  let [nowNs, stopped] = [0, false];
  const watch = new ServerWatch({ clock: { nowNs: () => nowNs }, isStopped: () => stopped });
  for (const [isStopped, seconds] of states) {
    stopped = isStopped;
    for (const endNs = nowNs + seconds * 1e9; nowNs < endNs; nowNs += 1e8) if (watch.look()) return nowNs / 1e9;
  }
  return undefined;
}

describe('a node server', () => {
  it('that is slow is waited for', () => {
    expect(givenUpAfter([[false, 3600]])).toBeUndefined();
  });

  it('that is stopped is given up after 5 s, from the moment it is seen', () => {
    expect(givenUpAfter([[true, 100]])).toBe(5);
    expect(
      givenUpAfter([
        [false, 20],
        [true, 100],
      ]),
    ).toBe(25);
  });

  it('that continues in time has all of the time again', () => {
    expect(
      givenUpAfter([
        [true, 4.5],
        [false, 0.1],
        [true, 4.5],
        [false, 1],
      ]),
    ).toBeUndefined();
  });

  it('that is stopped in two waits may have run between them', () => {
    let nowNs = 0;
    const watch = new ServerWatch({
      clock: { nowNs: () => nowNs },
      isStopped: () => true,
    });
    expect(watch.look()).toBe(false);
    nowNs = 60e9;
    expect(watch.look()).toBe(false);
  });
});
