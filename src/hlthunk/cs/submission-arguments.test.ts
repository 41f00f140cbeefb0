/** What submissions and waits pass to the driver, and what they return of its results: with a driver that a test answers for. */

import { describe, expect, it } from 'vitest';
import { scriptedFileCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { Errno, viewAt } from '../../sys/index.ts';
import {
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_FLAGS,
  HL_ENGINE_COMMAND,
  HL_MAX_JOBS_PER_CS,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_STATUS,
  HL_WAIT_CS_STATUS_FLAG,
} from '../../uapi/index.ts';
import {
  type CommandChunk,
  commandSubmission,
  EncapsSignals,
  waitForCs,
  waitForCsAsync,
} from './command-submission.ts';
import { engineCoresSetMode, enginesCommand } from './engine-commands.ts';

expectNoLeaks();

const refusal = (argument: string): unknown =>
  expect.objectContaining({
    code: 'ERR_GAUDI_INVALID_PARAMS',
    details: expect.objectContaining({ argument }),
  });

/** The queue indices of chunks at an address. */
function queuesAt(address: bigint, count: number): number[] {
  if (count === 0) return [];
  const view = new DataView(viewAt(Number(address), count * HL_CS_CHUNK.size));
  return Array.from({ length: count }, (_, index) => HL_CS_CHUNK.decode(view, index * HL_CS_CHUNK.size).queue_index);
}

function chunk(queueIndex: number): CommandChunk {
  return { queueIndex, cbHandle: 1n, cbSize: 8 };
}

/** A card that accepts submissions, and their arguments. */
function submittingCard() {
  const submissions: { restore: number[]; execute: number[]; flags: number; timeout: number }[] = [];
  const answer = (args: DataView): number => {
    const decoded = HL_CS_ARGS.in.decode(args);
    submissions.push({
      restore: queuesAt(decoded.chunks_restore, decoded.num_chunks_restore),
      execute: queuesAt(decoded.chunks_execute, decoded.num_chunks_execute),
      flags: decoded.cs_flags,
      timeout: decoded.timeout,
    });
    HL_CS_ARGS.out.encode({ seq: 5n }, args);
    return 0;
  };
  return { ...scriptedFileCard({ CS: answer }), submissions };
}

describe('a submission', () => {
  it('passes chunks that restore apart from those that execute', () => {
    const { card, submissions } = submittingCard();
    expect(card.submitsCommands).toBe(false);
    expect(commandSubmission({ card }, [chunk(1), chunk(2)], { restore: [chunk(3)] })).toBe(5n);
    expect(submissions).toEqual([{ restore: [3], execute: [1, 2], flags: 0, timeout: 0 }]);
    expect(card.submitsCommands).toBe(true);
    card.close();
  });

  it('has up to 512 chunks, those that restore included', () => {
    const { card, submissions } = submittingCard();
    const most = Array.from({ length: HL_MAX_JOBS_PER_CS - 1 }, (_, index) => chunk(index));
    expect(commandSubmission({ card }, most, { restore: [chunk(900)] })).toBe(5n);
    expect(() => commandSubmission({ card }, most, { restore: [chunk(900), chunk(901)] })).toThrow(refusal('chunks'));
    expect(submissions.map(({ restore, execute }) => [restore, execute.length])).toEqual([[[900], most.length]]);
    card.close();
  });

  it.each([
    ['without a time-out has that of the driver', undefined, 0, 0],
    ['may time out after 0 seconds', 0, HL_CS_FLAGS.CUSTOM_TIMEOUT, 0],
    ['may time out after 9 seconds', 9, HL_CS_FLAGS.CUSTOM_TIMEOUT, 9],
  ])('%s', (_title, timeoutSeconds, flags, timeout) => {
    const { card, submissions } = submittingCard();
    commandSubmission({ card }, [chunk(1)], { timeoutSeconds });
    expect(submissions).toMatchObject([{ flags, timeout }]);
    card.close();
  });

  it('consumes reserved signals only as the first member of a staged one', () => {
    const { card, submissions } = submittingCard();
    const encapsSignals = new EncapsSignals(card, 3, 0x100, 2);
    const { STAGED_SUBMISSION, STAGED_SUBMISSION_FIRST, ENCAP_SIGNALS } = HL_CS_FLAGS;
    for (const flags of [undefined, STAGED_SUBMISSION, STAGED_SUBMISSION_FIRST]) {
      expect(() => commandSubmission({ card }, [chunk(1)], { flags, encapsSignals })).toThrow(refusal('flags'));
    }
    expect([submissions, encapsSignals.live]).toEqual([[], true]);
    const flags = STAGED_SUBMISSION | STAGED_SUBMISSION_FIRST;
    expect(commandSubmission({ card }, [chunk(1)], { flags, encapsSignals })).toBe(5n);
    expect(submissions).toMatchObject([{ flags: flags | ENCAP_SIGNALS }]);
    expect(encapsSignals.live).toBe(false);
    card.close();
  });
});

describe('a wait', () => {
  it.each([
    ['for a recent submission', 0, { gone: false, timestampNs: undefined }],
    ['for a submission of long ago', HL_WAIT_CS_STATUS_FLAG.GONE, { gone: true, timestampNs: undefined }],
    ['with a timestamp', HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD, { gone: false, timestampNs: 77n }],
  ])('%s returns what the driver says', async (_title, flags, result) => {
    const answer = (args: DataView): number => {
      HL_WAIT_CS_ARGS.out.encode({ status: HL_WAIT_CS_STATUS.COMPLETED, flags, timestamp_nsec: 77n }, args);
      return 0;
    };
    const { card } = scriptedFileCard({ WAIT_CS: answer });
    const expected = { status: HL_WAIT_CS_STATUS.COMPLETED, errno: 0, ...result };
    expect(waitForCs({ card }, 1n, 0)).toEqual(expected);
    expect(await waitForCsAsync({ card }, 1n, 0)).toEqual(expected);
    card.close();
  });
});

describe('a command to engines', () => {
  /** A card that records the lists of commands. */
  function engineCard(result: number) {
    const commands: { ids: number[]; command: number; flags: number }[] = [];
    const answer = (args: DataView): number => {
      const { engines, num_engines, engine_command, cs_flags } = HL_CS_ARGS.in.decode(args);
      const ids = [...new Uint32Array(viewAt(Number(engines), num_engines * 4))];
      commands.push({ ids, command: engine_command, flags: cs_flags });
      return result;
    };
    return { ...scriptedFileCard({ CS: answer }), commands };
  }
  const { CORE_RUN, STALL } = HL_ENGINE_COMMAND;

  it('names each engine of its list', () => {
    const { card, commands } = engineCard(0);
    enginesCommand({ card }, [7, 3, 5], STALL);
    engineCoresSetMode({ card }, [2, 9], CORE_RUN);
    expect(commands).toEqual([
      { ids: [7, 3, 5], command: STALL, flags: HL_CS_FLAGS.ENGINES_COMMAND },
      { ids: [2, 9], command: CORE_RUN, flags: HL_CS_FLAGS.ENGINE_CORE_COMMAND },
    ]);
    card.close();
  });

  it('may name 1024 engines', () => {
    const { card, commands } = engineCard(0);
    const ids = Array.from({ length: 1024 }, (_, index) => index);
    enginesCommand({ card }, ids, STALL);
    expect(commands.map((each) => each.ids)).toEqual([ids]);
    expect(() => enginesCommand({ card }, [...ids, 1024], STALL)).toThrow(refusal('engineIds'));
    card.close();
  });

  it('fails if the driver has no resources for it', () => {
    const { card } = engineCard(-Errno.EAGAIN);
    expect(() => enginesCommand({ card }, [1], STALL)).toThrow(
      expect.objectContaining({ code: 'ERR_GAUDI_DEVICE_BUSY', message: expect.stringContaining('EAGAIN') }),
    );
    card.close();
  });
});
