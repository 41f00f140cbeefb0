import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { addAbortCallback, addAbortListener, removeAbortCallback } from './listener.ts';

describe('callbacks of a signal', () => {
  it('share one listener, which goes with the last of them', () => {
    const { signal } = new AbortController();
    const listeners = Array.from({ length: 20 }, () => addAbortListener(signal, () => {}));
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    for (const listener of listeners) listener[Symbol.dispose]();
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('run once each, except for one that another has removed', () => {
    const abort = new AbortController();
    const ran: string[] = [];
    const removed = (): void => void ran.push('removed');
    addAbortCallback(abort.signal, () => {
      ran.push('first');
      removeAbortCallback(abort.signal, removed);
    });
    addAbortCallback(abort.signal, removed);
    addAbortCallback(abort.signal, () => ran.push('last'));
    abort.abort();
    abort.abort();
    expect(ran).toEqual(['first', 'last']);
  });

  it('run soon if it has fired', async () => {
    let hasRun = false;
    addAbortCallback(AbortSignal.abort(), () => {
      hasRun = true;
    });
    expect(hasRun).toBe(false);
    await undefined;
    expect(hasRun).toBe(true);
  });
});
