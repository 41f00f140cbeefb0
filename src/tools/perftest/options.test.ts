/** Options of perftest: what their text means, what is refused and why. */

import { describe, expect, it } from 'vitest';
import { isRange, specOf, type TestOptions } from './options.ts';
import { checkSpec, messageBytes, messageExtent, packSpec, TESTS, unpackSpec, warmUpOf } from './spec.ts';

const UCT: TestOptions = { x: 'posix', d: 'memory' };

function failure(run: () => unknown): { readonly code: string; readonly message: string } {
  try {
    run();
  } catch (error) {
    return error as { code: string; message: string };
  }
  throw new TypeError('nothing failed');
}

describe('specOf', () => {
  it('has the defaults of ucx_perftest', () => {
    expect(specOf({ t: 'tag_bw' })).toMatchObject({
      sizes: [8],
      iterations: 1_000_000,
      warmUp: 10_000,
      steady: true,
      window: 32,
      sendMemory: 'host',
      recvMemory: 'host',
      percentile: 50,
      sendType: 'contig',
      recvType: 'contig',
      headerBytes: 0,
      verify: false,
    });
    expect(specOf({ t: 'ucp_put_lat' }).window).toBe(1);
    expect(specOf({ ...UCT, t: 'am_lat' })).toMatchObject({ layout: 'short', flowWindow: 127, headerBytes: 8 });
    // A get has no short form in ucx_perftest.
    expect(specOf({ ...UCT, t: 'get' }).layout).toBe('zcopy');
  });

  it.each(TESTS.map(({ name }) => name))('knows %s', (name) => {
    expect(specOf({ ...UCT, t: name }).kind.name).toBe(name);
  });

  it('reads every option', () => {
    const options = { t: 'tag_lat', s: '16,4k,1M', m: 'gaudi,host', n: '7', w: '3', O: '5', i: '1m', R: '99.9' };
    expect(failure(() => specOf(options)).message).toMatch(/-i must be a number/);
    const spec = specOf({ ...options, i: '2097152', D: 'iov,contig', C: true, U: true, e: true, z: true });
    expect(spec).toMatchObject({ sendMemory: 'gaudi', recvMemory: 'host', iterations: 7, warmUp: 3, window: 5 });
    expect(spec).toMatchObject({ percentile: 99.9, sendType: 'iov', recvType: 'contig', wildcard: true });
    expect(spec).toMatchObject({ unexpected: true, errorHandling: true, mapped: true });
    expect(messageBytes(spec)).toBe(16 + 4096 + 2 ** 20);
    expect(messageExtent(spec)).toBe(2 * 2_097_152 + 2 ** 20);
    expect(messageExtent({ ...spec, stride: 0 })).toBe(messageBytes(spec));
  });

  it('takes pieces of one size with -D iov, and a range without', () => {
    const pieces = { t: 'ucp_put_bw', s: '1024:16,8', D: 'iov' };
    expect(specOf(pieces)).toMatchObject({ sizes: [...new Array<number>(16).fill(1024), 8], recvType: 'contig' });
    expect(isRange(pieces)).toBe(false);
    expect(isRange({ s: '8:4k' })).toBe(true);
    expect(isRange({ s: '8..4k', D: 'iov' })).toBe(true);
    expect(failure(() => specOf({ ...pieces, s: '8:x' })).message).toMatch(/number of elements after the colon/);
  });

  it('takes one name for both sides', () => {
    expect(specOf({ t: 'tag_lat', m: 'gaudi' })).toMatchObject({ sendMemory: 'gaudi', recvMemory: 'gaudi' });
  });

  it('takes sizes beyond host memory for memory of cards', () => {
    expect(messageBytes(specOf({ t: 'tag_lat', m: 'gaudi', s: '8g' }))).toBe(2 ** 33);
  });

  it('checks data with one message at a time', () => {
    expect(specOf({ t: 'tag_bw', V: true }).window).toBe(1);
    expect(failure(() => specOf({ t: 'tag_bw', V: true, O: '2' })).message).toMatch(/-O must be 1/);
  });

  it('warms up exactly as long as the user says', () => {
    expect(specOf({ t: 'tag_lat', w: '10000' }).steady).toBe(false);
    expect(unpackSpec(packSpec(specOf({ t: 'tag_lat', w: '5' })))).toMatchObject({ warmUp: 5, steady: false });
  });

  it('warms up for a tenth of the run at most', () => {
    expect(warmUpOf(specOf({ t: 'tag_lat', n: '101' }))).toBe(11);
    expect(warmUpOf(specOf({ t: 'tag_lat', w: '5' }))).toBe(5);
    expect(warmUpOf(specOf({ t: 'tag_lat', w: '0' }))).toBe(0);
  });

  it.each<[string, TestOptions, RegExp]>([
    ['no test', {}, /-t must name a test/],
    ['an unknown test', { t: 'get_bw' }, /-t must be one of am_lat, .*"get_bw"/],
    ['no transport', { t: 'put_lat' }, /-x must name the transport/],
    ['no device', { t: 'put_lat', x: 'posix' }, /-d must name the device/],
    ['no size', { t: 'tag_lat', s: '' }, /-s must be sizes/],
    ['a negative size', { t: 'tag_lat', s: '-1' }, /-s must be sizes/],
    ['infinite sizes', { t: 'tag_lat', s: 'inf' }, /-s must be sizes/],
    ['nothing to send', { t: 'tag_lat', s: '0' }, /-s must be at least 1 byte/],
    ['sizes beyond memory', { t: 'tag_lat', s: '2t' }, /-s must be an integer from 0 to/],
    ['a size beyond host memory', { t: 'tag_lat', s: '1099511627776' }, /-s must be at most 4294967296 bytes in host/],
    ['sizes beyond host memory', { t: 'tag_lat', s: '3g,2g', m: 'host,gaudi' }, /-s must be at most 4294967296 bytes/],
    [
      'pieces beyond host memory',
      { t: 'tag_lat', s: '8,8', i: '4294967296' },
      /-i \(with the elements of a message\) must be at most/,
    ],
    ['a size of an atomic operation', { t: 'ucp_add', s: '16' }, /-s must be 4 or 8 for ucp_add/],
    ['no room for the header', { ...UCT, t: 'am_lat', s: '4' }, /-s must be at least 8/],
    ['no iterations', { t: 'tag_lat', n: '0' }, /-n must be an integer from 1/],
    ['text', { t: 'tag_lat', n: '1e3' }, /-n must be a number/],
    ['a window of none', { t: 'tag_lat', O: '0' }, /-O must be an integer from 1/],
    ['a rank', { t: 'tag_lat', R: '101' }, /-R must be from 0 to 100/],
    ['memory', { t: 'tag_lat', m: 'cuda' }, /-m must be one of host, gaudi/],
    ['three memories', { t: 'tag_lat', m: 'host,host,host' }, /-m must be one or two names/],
    ['a layout', { t: 'tag_lat', D: 'short' }, /-D must be one of contig, iov/],
    ['a layout of a transport', { ...UCT, t: 'put_lat', D: 'iov' }, /-D must be one of short, bcopy, zcopy/],
    ['a layout of atomic operations', { ...UCT, t: 'fadd', D: 'zcopy' }, /-D must be short for fadd/],
    ['a stride', { t: 'tag_lat', s: '8,8', i: '4' }, /-i must be 0 or at least as long/],
    ['a window of messages', { ...UCT, t: 'am_bw', W: '128' }, /-W must be an integer from 1 to 127/],
    ['a mode', { t: 'stream_lat', r: 'all' }, /-r must be recv or recv_data/],
    ['waiting', { t: 'tag_lat', E: 'often' }, /-E must be one of poll, sleep/],
    ['a passive receiver', { t: 'tag_lat', o: true }, /-o must be used with a one-sided test/],
  ])('refuses %s by name', (_what, options, message) => {
    expect(failure(() => specOf(options))).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message: expect.stringMatching(message),
    });
  });

  it.each<[string, TestOptions]>([
    ['-T 2', { ...UCT, t: 'am_lat', T: '2' }],
    ['-M multi', { t: 'tag_lat', M: 'multi' }],
    ['-A signal', { ...UCT, t: 'am_lat', A: 'signal' }],
    ['-B', { t: 'tag_lat', B: true }],
    ['-P 1', { t: 'tag_lat', P: '1' }],
    ['-D shortiov', { ...UCT, t: 'am_lat', D: 'shortiov' }],
    ['-E sleep', { t: 'ucp_put_lat', E: 'sleep' }],
    ['-E sleep', { t: 'am_lat', x: 'posix', d: 'memory', E: 'sleep' }],
    ['-D contig,iov', { t: 'ucp_put_lat', D: 'contig,iov' }],
    ['-D iov for ucp_fadd', { t: 'ucp_fadd', D: 'iov' }],
    ['a list of sizes', { t: 'ucp_fadd', s: '4,4' }],
    ['-D bcopy', { ...UCT, t: 'put_bw', D: 'bcopy' }],
    ['-H 16', { ...UCT, t: 'am_bw', H: '16' }],
  ])('refuses %s with the reason', (name, options) => {
    const { code, message } = failure(() => specOf(options));
    expect(code).toBe('ERR_UNSUPPORTED');
    expect(message.startsWith(name)).toBe(true);
    expect(message).toMatch(/ is not supported: \S+/);
  });
});

describe('unpackSpec', () => {
  const spec = specOf({ t: 'ucp_am_bw', s: '64', H: '8' });

  it('reads what packSpec wrote', () => {
    expect(unpackSpec(JSON.parse(JSON.stringify(packSpec(spec))))).toEqual(spec);
  });

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['no object', 7],
    ['no test', {}],
    ['an unknown test', { ...packSpec(spec), kind: 'constructor' }],
    ['no sizes', { ...packSpec(spec), sizes: undefined }],
    ['sizes that are none', { ...packSpec(spec), sizes: [{}] }],
    ['a device that is none', { ...packSpec(spec), device: 7 }],
    ['a flag that is none', { ...packSpec(spec), mapped: 'y' }],
    ['memory that is none', { ...packSpec(spec), sendMemory: 'rocm' }],
    ['a window that is none', { ...packSpec(spec), window: 0.5 }],
  ])('refuses %s', (_what, value) => {
    expect(failure(() => unpackSpec(value)).code).toBe('ERR_INVALID_PARAM');
  });

  it('refuses what the options of this side would refuse', () => {
    expect(failure(() => checkSpec({ ...spec, sizes: [] })).message).toMatch(/-s must have 1 to/);
  });
});
