import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IPC_HANDLE_BYTES } from '../../../hlthunk/index.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import {
  CHANNEL_MESSAGE_BYTES_MAX,
  ChannelMessage,
  closingMessage,
  handleMessage,
  nackMessage,
  readMessage,
  requestMessage,
  retiredMessage,
} from './layout.ts';

describe('messages of the channel service', () => {
  it('are read as they were written', () => {
    const key = Uint8Array.from({ length: RKEY_TABLE_KEY_BYTES }, (_, i) => i);
    const handle = Uint8Array.from({ length: IPC_HANDLE_BYTES }, (_, i) => i + 1);
    expect(readMessage(requestMessage(7, key))).toEqual({ kind: ChannelMessage.REQUEST, id: 7, key });
    expect(readMessage(handleMessage(0xffff_ffff, handle))).toEqual({
      kind: ChannelMessage.HANDLE,
      id: 0xffff_ffff,
      handle,
    });
    expect(readMessage(retiredMessage(2 ** 40 + 1))).toEqual({
      kind: ChannelMessage.RETIRED,
      arenaGeneration: 2 ** 40 + 1,
    });
    expect(readMessage(closingMessage())).toEqual({ kind: ChannelMessage.CLOSING });
  });

  it('contain a refusal with its code, and a truncated text if it is too long', () => {
    const error = new UcxError({ code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR, message: 'gone '.repeat(500) });
    const bytes = nackMessage(3, error);
    expect(bytes.byteLength).toBeLessThanOrEqual(CHANNEL_MESSAGE_BYTES_MAX);
    const message = readMessage(bytes);
    expect(message).toMatchObject({ id: 3, error: { code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR } });
  });

  it.each([Status.OK, Status.INPROGRESS, Status.NO_RESOURCE, -77, 5])(
    'convert a refusal with %s to a failure',
    (status) => {
      const error = new UcxError({ code: 'nonsense\n', status: status as Status, message: 'no' });
      expect(readMessage(nackMessage(1, error))).toMatchObject({
        error: { code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR },
      });
    },
  );

  it('are undefined or valid, for any bytes', async () => {
    const kinds: readonly (number | undefined)[] = [undefined, ...Object.values(ChannelMessage)];
    const bytes = fc.uint8Array({ maxLength: CHANNEL_MESSAGE_BYTES_MAX });
    await fc.assert(
      fc.property(bytes, fc.boolean(), fc.nat(6), (random, versioned, kind) => {
        if (versioned && random.byteLength >= 4) random.set([1, 0, kind, 0]);
        const message = readMessage(random);
        expect(kinds).toContain(message?.kind);
        if (message?.kind === ChannelMessage.NACK) expect(message.error.status).toBeLessThan(0);
      }),
      { numRuns: 2000 },
    );
  });
});
