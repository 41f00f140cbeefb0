import { expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { close, Errno, EventFd, memfdCreate } from '../../../sys/index.ts';
import { Notifier } from './notifier.ts';

expectNoLeaks();

it('registers one event fd, and no other descriptor', () => {
  const notifier = new Notifier();
  const file = memfdCreate('other');
  const event = new EventFd();
  expect(notifier.register(file)).toBe(Errno.EINVAL);
  expect(notifier.register(9999)).toBe(Errno.EBADF);
  expect(notifier.register(event.fd)).toBe(0);
  expect(notifier.register(event.fd)).toBe(Errno.EINVAL);
  notifier.raise(1);
  expect(event.tryRead()).toBe(1);
  expect([notifier.takeEvents(), notifier.takeEvents()]).toEqual([1, 0]);
  notifier.close();
  event.close();
  close(file);
});
