import { describe, expect, it } from 'vitest';
import { dup, openFileDescriptors, PollEvent, pollNow } from '../file/file.ts';
import { EventFd } from './event-fd.ts';

describe('EventFd', () => {
  it('adds up signals until they are read', () => {
    using event = new EventFd();
    expect(event.tryRead()).toBe(0);
    event.signal();
    event.signal(41);
    expect(pollNow(event.fd, PollEvent.IN)).toBe(PollEvent.IN);
    expect(event.tryRead()).toBe(42);
    expect(event.tryRead()).toBe(0);
  });

  it('counts beyond 32 bits', () => {
    using event = new EventFd();
    event.signal(0xffffffff);
    event.signal(0xffffffff);
    expect(event.tryRead()).toBe(2 * 0xffffffff);
  });

  it('wakes a callback, through another descriptor too', async () => {
    using event = new EventFd();
    using remote = new EventFd(dup(event.fd));
    const seen: number[] = [];
    for (const source of [event, remote]) {
      await new Promise<void>((resolve) => {
        const subscription = event.onReadable(() => {
          seen.push(event.tryRead());
          subscription.close();
          resolve();
        });
        source.signal(7);
      });
    }
    expect(seen).toEqual([7, 7]);
  });

  it('resolves promises from the callback', async () => {
    using event = new EventFd();
    const woken = new Promise<number>((resolve) => {
      event.onReadable(() => resolve(event.tryRead()));
    });
    event.signal();
    expect(await woken).toBe(1);
  });

  it('closes with its subscriptions, once', () => {
    const before = openFileDescriptors();
    const event = new EventFd();
    const subscription = event.onReadable(() => {});
    event.close();
    event.close();
    expect([event.closed, subscription.closed]).toEqual([true, true]);
    expect(openFileDescriptors()).toBe(before);
    const closed = expect.objectContaining({ code: 'ERR_CLOSED' });
    expect(() => event.signal()).toThrow(closed);
    expect(() => event.tryRead()).toThrow(closed);
    expect(() => event.onReadable(() => {})).toThrow(closed);
  });
});
