/** Faults in the transfers of ucp: by lanes, by the worker of the peer, and through fragments. */

import type { Area } from './fault.ts';

export const UCP_TRANSFER: Area = {
  name: 'ucp-transfer',
  suites: ['test/contract/ucp/', 'test/simulation/simulation', 'test/fuzz/', 'test/property/'],
  faults: [
    {
      file: 'src/ucp/rma/software.ts',
      before: 'blocks.length > BLOCKS_MAX',
      after: 'blocks.length > 2 * BLOCKS_MAX',
      breaks: 'a transfer of a peer has a bounded number of blocks',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'offset >= 0 && byteLength > 0 && offset + byteLength <= memory.byteLength',
      after: 'offset >= 0 && byteLength > 0 && offset <= memory.byteLength',
      breaks: 'a range of a peer ends with the memory',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'offset >= 0 && byteLength > 0 && offset',
      after: 'offset >= 0 && offset',
      breaks: 'a block of a peer has bytes',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'start += byteLength;',
      after: 'start = byteLength;',
      breaks: 'blocks of a peer follow each other',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'this.#find(frame, requested, MemAccess.REMOTE_PUT)',
      after: 'this.#find(frame, requested, MemAccess.REMOTE_GET)',
      breaks: 'memory that denies puts is not written',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'this.#find(frame, requested, MemAccess.REMOTE_GET)',
      after: 'this.#find(frame, requested, MemAccess.REMOTE_PUT)',
      breaks: 'memory that denies gets is not read',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'if (pieces === undefined) postReply(connection, requested.request, Status.INVALID_ADDR);\n    else this',
      after: 'if (pieces !== undefined) this',
      breaks: 'a peer learns that its put is refused',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before:
        '    if (connection !== undefined && request === undefined && status === Status.OK)\n      postReply(connection, peerRequest, Status.CANCELED);',
      after: '',
      breaks: 'the owner of a get that has ended is released',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: '|| request.queued || !request.isAsking) return;',
      after: '|| request.queued) return;',
      breaks: 'a get takes one answer',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'if (status !== Status.OK) request.end(status);\n    else this',
      after: 'this',
      breaks: 'a get ends with the refusal of the owner',
    },
    {
      file: 'src/ucp/rma/software.ts',
      before: 'request.isRemote = true;',
      after: '',
      breaks: 'flushes wait for what the owner executes',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: 'if (!(remoteOffset >= 0 && remoteOffset + byteLength <= rkey.byteLength)) return undefined;',
      after: '',
      breaks: 'a transfer of a protocol stays within the remote memory',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: '    host.internalTransfers -= 1;\n    done(status);',
      after: '    done(status);',
      breaks: 'a worker that closes waits for transfers in flight, and no longer',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: 'host.internalTransfers += 1;',
      after: '',
      breaks: 'a worker that closes waits for transfers in flight',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: 'owner.setEntry(memory, local.byteOffset - registered.byteOffset + localOffset, byteLength);',
      after: 'owner.setEntry(memory, localOffset, byteLength);',
      breaks: 'bytes begin at their place in a registered buffer',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: "if (transfer.rkey.released) throw closedError('remote key');",
      after: '',
      breaks: 'a transfer does not use a released key',
    },
    {
      file: 'src/ucp/transfer/transfer.ts',
      before: 'owner.setEntry(memory, start + localOffset, byteLength);',
      after: 'owner.setEntry(memory, localOffset, byteLength);',
      breaks: 'bytes begin at their place in mapped memory',
    },
    {
      file: 'src/ucp/transfer/move.ts',
      before: '    by.error = error;\n',
      after: '',
      breaks: 'the request learns why a transfer cannot be started',
    },
    {
      file: 'src/ucp/transfer/move.ts',
      before: 'const remoteOffset = offset + at;',
      after: 'const remoteOffset = offset + from + at;',
      breaks: 'the parts of a move go to their places',
    },
    {
      file: 'src/ucp/transfer/move.ts',
      before: 'isCarried = carried !== undefined;',
      after: 'isCarried = isCarried || carried !== undefined;',
      breaks: 'lanes move all bytes of a message or none',
    },
    {
      file: 'src/ucp/transfer/staging.ts',
      before: 'const copy = bytes.slice(start, start + byteLength);',
      after: 'const copy = bytes.subarray(start, start + byteLength);',
      breaks: 'bytes that wait for a fragment are a copy',
    },
    {
      file: 'src/ucp/transfer/staging.ts',
      before: '        this.release(fragment);\n        done(status);',
      after: '        done(status);',
      breaks: 'a fragment is given back behind its copy',
    },
    {
      file: 'src/ucp/transfer/staging.ts',
      before: '    if (!device.mapped) {\n      done(Status.INVALID_ADDR);\n      return;\n    }',
      after: '',
      breaks: 'nothing is copied to memory that was unmapped',
    },
    {
      file: 'src/ucp/transfer/staging.ts',
      before: 'else if (!holdsBytes(host, offset, bytes)) ended(Status.INVALID_ADDR);\n      else {',
      after: 'else {',
      breaks: 'bytes that were detached are not copied',
    },
  ],
};
