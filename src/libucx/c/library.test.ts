import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CompilerFolder, compilerSkipReason } from '../../../test/fixtures/libucp/c-library.ts';
import { compileFakeLibucp, DEFAULT_LIBUCP, installedLibucp } from '../../../test/fixtures/libucp/libucp.ts';
import { built } from '../../../test/fixtures/tools/built.ts';
import { allocateScratch, getEnvironment, NativeCallback, type ScratchBlock } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  UCP_EP_PARAM_FIELD,
  UCP_EP_PARAMS,
  UCP_FEATURE,
  UCP_OP_ATTR_FIELD,
  UCP_OP_ATTR_FLAG,
  UCP_PARAM_FIELD,
  UCP_PARAMS,
  UCP_REQUEST_PARAM,
  UCP_TAG_RECV_INFO,
  UCP_WORKER_ATTR,
  UCP_WORKER_ATTR_FIELD,
  UCP_WORKER_PARAMS,
} from './abi.ts';
import { FUNCTIONS } from './functions.ts';
import { openLibucp } from './library.ts';

const { libucp, skipReason } = installedLibucp();
if (skipReason !== undefined) console.info(`libucp not tested: ${skipReason}`);
const compilerReason = compilerSkipReason();
if (compilerReason !== undefined) console.info(`libraries like libucp not compiled: ${compilerReason}`);
const folder = new CompilerFolder();
afterAll(() => folder[Symbol.dispose]());

const NOT_FOUND = 'ERR_LIBUCX_NOT_FOUND';
const UNUSABLE = 'ERR_LIBUCX_UNUSABLE';
const VERSION = 'ERR_LIBUCX_VERSION';

function refuses(path: string, code: string, message: RegExp): void {
  expect(() => openLibucp({ PATH: path })).toThrow(
    expect.objectContaining({ code, message: expect.stringMatching(message), details: { path } }),
  );
  // A failure is not cached: the library may be installed by now.
  expect(() => openLibucp({ PATH: path })).toThrow(expect.objectContaining({ code }));
}

describe('a library that cannot be libucp', () => {
  it('is not installed', () => {
    refuses('libucp-missing.so.0', NOT_FOUND, /is not installed: .*apt install libucx0.*cannot open shared object/);
    refuses(join(folder.path, 'absent.so'), NOT_FOUND, /absent\.so is not installed: .*UCX_LIBUCP_PATH/);
  });

  it('is not a library', () => {
    refuses(folder.file('text.so', 'text'), UNUSABLE, /text\.so cannot be loaded \(.*(file too short|invalid ELF)/);
  });

  it('is not UCX', () => {
    refuses('libm.so.6', UNUSABLE, /^the UCX library libm\.so\.6 is not UCX: it lacks ucp_get_version$/);
  });

  it.skipIf(compilerReason !== undefined)('is too old, or of another major version (needs cc)', () => {
    const old = compileFakeLibucp(folder, 'old.so', { version: [1, 12, 1] });
    refuses(old, VERSION, /is UCX 1\.12\.1; it must be 1\.13 or newer, and 1\.x/);
    const next = compileFakeLibucp(folder, 'next.so', { version: [2, 0, 0], without: Object.keys(FUNCTIONS) });
    refuses(next, VERSION, /is UCX 2\.0\.0; it must be 1\.13 or newer, and 1\.x/);
  });

  it.skipIf(compilerReason !== undefined)('lacks functions, which are reported by name (needs cc)', () => {
    const path = compileFakeLibucp(folder, 'lacking.so', {
      version: [1, 17, 0],
      without: ['ucp_put_nbx', 'ucp_stream_recv_data_nb'],
    });
    refuses(path, UNUSABLE, /is UCX 1\.17\.0 and lacks ucp_put_nbx, ucp_stream_recv_data_nb$/);
  });
});

describe('a library that is libucp', () => {
  it.skipIf(compilerReason !== undefined)('reports its version and its memory types (needs cc)', () => {
    const path = compileFakeLibucp(folder, 'new.so', {
      version: [1, 22, 3],
      memoryTypes: ['host', 'cuda', 'gaudi'],
    });
    const fake = openLibucp({ PATH: path });
    expect(fake).toMatchObject({
      path,
      major: 1,
      minor: 22,
      version: '1.22.3',
      memoryTypes: ['host', 'cuda', 'gaudi'],
    });
    expect(openLibucp({ PATH: path })).toBe(fake);
    expect(fake.functions.ucp_worker_progress(0)).toBe(0);
  });

  it.skipIf(libucp === undefined)('is the installed one (needs libucp)', () => {
    expect(libucp!.version).toBe(libucp!.functions.ucp_get_version_string());
    expect(libucp!.memoryTypes.slice(0, 3)).toEqual(['host', 'cuda', 'cuda-managed']);
    expect(libucp!.memoryTypes).not.toContain('unknown');
    expect(libucp!.functions.ucs_status_string(-3)).toBe('Input/output error');
    expect(openLibucp(DEFAULT_LIBUCP)).toBe(libucp);
  });
});

describe('the functions of libucp', () => {
  const blocks: ScratchBlock[] = [];
  afterAll(() => {
    for (const block of blocks) block.free();
  });

  /** A zeroed struct with the given integers, of 32 bits each. */
  function struct(size: number, fields: readonly (readonly [offset: number, value: number])[] = []): ScratchBlock {
    const block = allocateScratch(size);
    blocks.push(block);
    for (const [offset, value] of fields) block.view.setUint32(offset, value, true);
    return block;
  }

  function pointerAt(block: ScratchBlock, offset = 0): number {
    return Number(block.view.getBigUint64(offset, true));
  }

  it.skipIf(libucp === undefined)('send a message to the same worker, with all bits of its tag (needs libucp)', () => {
    const { functions } = libucp!;
    const out = struct(8);
    const done = (status: number) => expect(functions.ucs_status_string(status)).toBe('Success');
    const { at: params } = UCP_PARAMS;
    const contextParams = struct(UCP_PARAMS.size, [
      [params.field_mask, UCP_PARAM_FIELD.FEATURES],
      [params.features, UCP_FEATURE.TAG],
    ]);
    done(functions.ucp_config_read(null, null, out.address));
    const config = pointerAt(out);
    // Not self alone: without a transport that needs its thread for events libucp crashes when it selects a protocol (1.23).
    done(functions.ucp_config_modify(config, 'TLS', 'self,posix'));
    done(functions.ucp_init_version(1, 13, contextParams.address, config, out.address));
    functions.ucp_config_release(config);
    const context = pointerAt(out);
    done(functions.ucp_worker_create(context, struct(UCP_WORKER_PARAMS.size).address, out.address));
    const worker = pointerAt(out);
    const attr = struct(UCP_WORKER_ATTR.size, [[0, UCP_WORKER_ATTR_FIELD.ADDRESS]]);
    done(functions.ucp_worker_query(worker, attr.address));
    const address = pointerAt(attr, UCP_WORKER_ATTR.at.address);
    const epParams = struct(UCP_EP_PARAMS.size, [[0, UCP_EP_PARAM_FIELD.REMOTE_ADDRESS]]);
    epParams.view.setBigUint64(UCP_EP_PARAMS.at.address, BigInt(address), true);
    done(functions.ucp_ep_create(worker, epParams.address, out.address));
    const ep = pointerAt(out);
    functions.ucp_worker_release_address(worker, address);

    const tag = 0xfedc_ba98_7654_3211n;
    const sent: number[] = [];
    const callback = new NativeCallback({
      parameters: ['int64_t', 'int8_t', 'uint64_t'],
      result: 'void',
      call: (_request: number, status: number, userData: number) => sent.push(status, userData),
    });
    const operation = UCP_REQUEST_PARAM.at;
    const mask = UCP_OP_ATTR_FIELD.CALLBACK | UCP_OP_ATTR_FIELD.USER_DATA | UCP_OP_ATTR_FLAG.NO_IMM_CMPL;
    const sendParam = struct(UCP_REQUEST_PARAM.size, [[operation.op_attr_mask, mask]]);
    sendParam.view.setBigUint64(operation.cb, BigInt(callback.address), true);
    sendParam.view.setUint32(operation.user_data, 77, true);
    const source = struct(64);
    source.u8.set(Array.from({ length: 64 }, (_, index) => index + 1));
    const target = struct(64);
    const receiving = functions.ucp_tag_recv_nbx(
      worker,
      target.address,
      64,
      tag,
      -1,
      struct(UCP_REQUEST_PARAM.size).address,
    );
    expect(receiving).toBeGreaterThan(0);
    const info = struct(UCP_TAG_RECV_INFO.size);
    expect(functions.ucp_tag_probe_nb(worker, 0, 0, 0, info.address)).toBe(0);
    const sending = functions.ucp_tag_send_nbx(ep, source.address, 64, tag, sendParam.address);
    expect(sending).toBeGreaterThan(0);
    while (functions.ucp_tag_recv_request_test(receiving, info.address) === Status.INPROGRESS) {
      functions.ucp_worker_progress(worker);
    }
    done(functions.ucp_request_check_status(receiving));
    while (functions.ucp_request_check_status(sending) === Status.INPROGRESS) functions.ucp_worker_progress(worker);
    expect(sent).toEqual([0, 77]);
    expect(target.u8).toEqual(source.u8);
    expect(info.view.getBigUint64(UCP_TAG_RECV_INFO.at.sender_tag, true)).toBe(tag);
    expect(info.view.getBigUint64(UCP_TAG_RECV_INFO.at.length, true)).toBe(64n);
    functions.ucp_request_free(sending);
    functions.ucp_request_free(receiving);

    const closing = functions.ucp_ep_close_nbx(ep, struct(UCP_REQUEST_PARAM.size).address);
    if (closing !== 0) {
      while (functions.ucp_request_check_status(closing) === Status.INPROGRESS) functions.ucp_worker_progress(worker);
      functions.ucp_request_free(closing);
    }
    callback.close();
    functions.ucp_worker_destroy(worker);
    functions.ucp_cleanup(context);
  });
});

describe('loading libucp', () => {
  interface Answer {
    /** The handlers of signals 1 to 31. */
    readonly before: readonly string[];
    readonly after: readonly string[];
    /** The first bytes of functions of libc. */
    readonly codeBefore: readonly string[];
    readonly codeAfter: readonly string[];
    readonly statuses: number[];
    readonly environment: Readonly<Record<string, string | null>>;
  }

  /** Runs the program that loads libucp, and returns its output; it must print nothing else. */
  function answerOf(variables: Readonly<Record<string, string>>): Answer {
    const program = built(new URL('../../../test/fixtures/programs/libucp-load-program.ts', import.meta.url));
    const options = { encoding: 'utf8', env: { ...process.env, ...variables } } as const;
    return JSON.parse(execFileSync(process.execPath, [program], options)) as Answer;
  }

  it.skipIf(libucp === undefined)(
    'leaves signals, output, environment and the code of libc as they were (needs libucp)',
    { timeout: 60_000 },
    () => {
      // This variable belongs to this package; libucp does not know it.
      const { before, after, codeBefore, codeAfter, statuses, environment } = answerOf({
        UCX_GAUDI_DRIVER: 'emulator',
      });
      // They would be patched while other threads run, and tested by moving the end of the heap: a crash now and then.
      expect(codeAfter).toEqual(codeBefore);
      expect(statuses).toEqual([0, 0]);
      expect(after).toEqual(before);
      expect(new Set(Object.values(environment))).toEqual(new Set([null]));
    },
  );

  it.skipIf(libucp === undefined)('honours variables set by the user (needs libucp)', { timeout: 60_000 }, () => {
    const { before, after, environment } = answerOf({ UCX_HANDLE_ERRORS: 'bt' });
    expect(environment).toMatchObject({ UCX_HANDLE_ERRORS: 'bt', UCX_DEBUG_SIGNO: null });
    const changed = after.flatMap((handler, index) => (handler === before[index] ? [] : [index + 1]));
    expect(changed).toContain(constants.signals.SIGSEGV);
  });

  it.skipIf(libucp === undefined)('hides variables of this library (needs libucp)', { timeout: 60_000 }, () => {
    using folder = new CompilerFolder();
    const file = join(folder.path, 'profile');
    const { before, after, environment } = answerOf({
      UCX_DEBUG_SIGNO: 'SIGUSR2',
      UCX_PROFILE_MODE: 'accum,log',
      UCX_PROFILE_FILE: file,
    });
    expect(environment).toMatchObject({ UCX_DEBUG_SIGNO: 'SIGUSR2' });
    expect(after).toEqual(before);
    expect(existsSync(file)).toBe(false);
  });

  it('does not leave variables behind when it fails', () => {
    expect(() => openLibucp({ PATH: 'libucp-missing.so.0' })).toThrow();
    expect(getEnvironment('UCX_DEBUG_SIGNO')).toBeUndefined();
  });
});
