import { chownSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { errorOf } from '../../../../test/contract/uct/uct-fixture.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { KEY, keyFile } from '../../../../test/fixtures/transports/key-files.ts';
import { mkfifo } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { KEY_BYTES_MIN, openSecurity, readKeyFile } from './security.ts';

const good = keyFile(`\n  ${KEY}\t\r\n`);
const binary = Uint8Array.from({ length: 32 }, (_, i) => 255 - i);
const files = {
  binary: keyFile(binary),
  shortest: keyFile('k'.repeat(KEY_BYTES_MIN), 0o400),
  short: keyFile(`  ${'k'.repeat(KEY_BYTES_MIN - 1)}\n`),
  empty: keyFile(''),
  longest: keyFile('k'.repeat(4096)),
  long: keyFile('k'.repeat(4097)),
  group: keyFile(KEY, 0o640),
  world: keyFile(KEY, 0o604),
  writable: keyFile(KEY, 0o620),
};

describe('a key file', () => {
  expectNoLeaks();

  it('contains any bytes as the key, with blanks around it', () => {
    expect(Buffer.from(readKeyFile(good)).toString()).toBe(KEY);
    expect(readKeyFile(files.binary)).toEqual(binary);
    expect(readKeyFile(files.shortest)).toHaveLength(KEY_BYTES_MIN);
    expect(readKeyFile(files.longest)).toHaveLength(4096);
  });

  it.each([
    ['that is too short', files.short, Status.INVALID_PARAM, /must have a key of at least 16 bytes, got 15/],
    ['that is empty', files.empty, Status.INVALID_PARAM, /at least 16 bytes, got 0/],
    ['that is too long', files.long, Status.INVALID_PARAM, /must have at most 4096 bytes/],
    ['that the group may read', files.group, Status.INVALID_PARAM, /by its owner only, mode 0600 or 0400, got 0640/],
    ['that all may read', files.world, Status.INVALID_PARAM, /got 0604/],
    ['that the group may write', files.writable, Status.INVALID_PARAM, /got 0620/],
    ['that is a directory', dirname(good), Status.INVALID_PARAM, /must be a regular file/],
    ['that does not exist', `${good}.not`, Status.IO_ERROR, /cannot be read: ENOENT/],
  ])('%s is rejected', (_name, path, status, message) => {
    const error = errorOf(() => readKeyFile(path));
    expect(error).toMatchObject({ code: 'ERR_TCP_KEY_FILE', status });
    expect(error.message).toMatch(message);
    expect(error.message).toContain(path);
    expect(error.message).not.toContain(KEY);
  });
});

describe('a pipe instead of a key file', () => {
  it('is rejected, and does not block a program while it has no writer', () => {
    const path = `${keyFile()}-pipe`;
    mkfifo(path, 0o600);
    const error = errorOf(() => readKeyFile(path));
    expect(error).toMatchObject({ code: 'ERR_TCP_KEY_FILE', status: Status.INVALID_PARAM });
    expect(error.message).toMatch(/must be a regular file/);
  });
});

describe('a file of another user', () => {
  const own = process.geteuid!();

  it('is rejected with any mode', () => {
    for (const path of [good, files.shortest, files.world]) {
      const error = errorOf(() => readKeyFile(path, own + 1));
      expect(error).toMatchObject({ code: 'ERR_TCP_KEY_FILE', status: Status.INVALID_PARAM });
      expect(error.message).toContain(
        `must belong to the user of this process, ${own + 1}, but belongs to user ${own}`,
      );
    }
  });

  it.skipIf(own !== 0)('is rejected for root, which could read it (needs root)', () => {
    const path = keyFile(KEY);
    chownSync(path, 65_534, 65_534);
    expect(errorOf(() => readKeyFile(path))).toMatchObject({ code: 'ERR_TCP_KEY_FILE', status: Status.INVALID_PARAM });
  });
});

describe('the security of connections', () => {
  it('needs a key unless it is none', () => {
    const log = createTestLog();
    expect(openSecurity({ SECURITY: 'none', KEY_FILE: '' }, log.log)).toBeUndefined();
    expect(openSecurity({ SECURITY: 'auth', KEY_FILE: good }, log.log)).toEqual({
      level: 'auth',
      key: Uint8Array.from(Buffer.from(KEY)),
    });
    const error = errorOf(() => openSecurity({ SECURITY: 'auth', KEY_FILE: '' }, log.log));
    expect(error).toMatchObject({ code: 'ERR_TCP_KEY_FILE', status: Status.INVALID_PARAM });
    expect(error.message).toBe('UCX_TCP_SECURITY=auth needs a shared key: set UCX_TCP_KEY_FILE');
    log.expectQuiet();
  });

  it('is none with an unused key, with a warning', () => {
    const log = createTestLog();
    log.allow(/UCX_TCP_KEY_FILE is not used/);
    expect(openSecurity({ SECURITY: 'none', KEY_FILE: good }, log.log)).toBeUndefined();
    expect(log.records).toHaveLength(1);
  });
});
