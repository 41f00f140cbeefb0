/** Faults in the connections of tcp: acknowledgements, order of answers, releases, limits against hostile peers, the end of a connection. */

import type { Area } from './fault.ts';
import { inFile } from './in-file.ts';

const FOLDER = 'src/uct/tcp/connection';
const inConnection = inFile(`${FOLDER}/connection.ts`);
const inTable = inFile(`${FOLDER}/connection-table.ts`);
const inInbound = inFile(`${FOLDER}/inbound.ts`);
const inLiveness = inFile(`${FOLDER}/liveness.ts`);
const inBuffers = inFile(`${FOLDER}/buffers.ts`);

export const TCP_CONNECTION: Area = {
  name: 'tcp-connection',
  suites: [
    'src/uct/tcp/',
    'test/contract/uct/',
    'test/fuzz/',
    'test/contract/ucp/',
    'test/simulation/simulation',
    'test/integration/peers/',
  ],
  faults: [
    inConnection(
      'return this.isUp && (this.wantsWrite || this.isBroken || this.transmitter.hasPendingAcks);',
      'return this.isUp && (this.wantsWrite || this.isBroken);',
      'acknowledgements that are due keep a connection in progress',
    ),
    inConnection(
      'return this.isUp && (this.wantsWrite || this.isBroken || this.transmitter.hasPendingAcks);',
      'return this.isUp && (this.wantsWrite || this.transmitter.hasPendingAcks);',
      'a connection whose sending has failed is ended by progress',
    ),
    inConnection(
      'if (!parser.isInRun) this.acknowledge();',
      'this.acknowledge();',
      'a run of puts is acknowledged once',
    ),
    inConnection('if (!parser.isInRun) this.acknowledge();', '', 'puts are acknowledged by progress'),
    inConnection(
      'if (this.isUp && this.transmitter.isBlocked) this.#sendMore();',
      '',
      'progress sends what waits for room',
    ),
    inConnection(
      'if (received === 0 && this.isBroken) this.#endBroken();',
      'if (this.isBroken) this.#endBroken();',
      'data that the peer sent before it disconnected comes first',
    ),
    inConnection(
      'this.check(this.transmitter.endBatch());\n    this.#closeIfUnused();',
      'this.check(this.transmitter.endBatch());',
      'a connection that both ends have left ends with its last batch',
      'leaving sends the batch, and an end without endpoints has none',
    ),
    inConnection(
      'if (transmitter.isAwaited || this.#flushes.length > 0) return 0;',
      'if (this.#flushes.length > 0) return 0;',
      'no operation ends in the event loop',
    ),
    inConnection(
      'if (transmitter.isAwaited || this.#flushes.length > 0) return 0;',
      'if (transmitter.isAwaited) return 0;',
      'no flush ends in the event loop',
    ),
    inConnection(
      'if (this.isUp && this.transmitter.hasPendingAcks) this.check(this.transmitter.acknowledge());',
      'if (this.isUp && this.transmitter.hasPendingAcks) this.transmitter.acknowledge();',
      'a failed acknowledgement is noted',
    ),
    inConnection(
      'if (this.hasMore) this.#noteBlocked();\n      throw error;',
      'throw error;',
      'answers to earlier frames leave after a handler has thrown',
    ),
    inConnection(
      'if (inbound.payload.left > 0) inbound.events += 1;',
      '',
      'a long body that is being received is progress',
    ),
    inConnection(
      'if (this.#flushes.length > 0) this.#flushes.settle(transmitter.released);\n      if (this.isUp) {',
      'if (this.isUp) {',
      'a flush ends with the last answer',
    ),
    inConnection('this.#reports.hot = this;', '', 'the connection that received last is polled first'),
    inConnection(
      'if (transmitter.hasPendingAcks || this.isBroken) this.#noteBlocked();',
      'if (this.isBroken) this.#noteBlocked();',
      'acknowledgements that are due leave before a sleep',
    ),
    inConnection(
      'if (transmitter.hasPendingAcks || this.isBroken) this.#noteBlocked();',
      'if (transmitter.hasPendingAcks) this.#noteBlocked();',
      'a failure of an answer ends the connection',
    ),
    inConnection('if (inbound.hasBye) this.#closeIfUnused();', '', 'a connection ends when both ends have left'),
    inConnection(
      'if (status === Status.IO_ERROR) {\n      this.#noteBlocked();',
      'if (status === Status.IO_ERROR) {',
      'a failed send is seen by the next progress',
    ),
    inConnection('return endOf(transmitter.failure);', 'return status;', 'a failed send names what has happened'),
    inConnection(
      'if (transmitter.isBlocked) this.#noteBlocked();\n    return status;',
      'return status;',
      'a connection without room is known to the interface',
    ),
    inConnection('if (this.wantsWrite) this.room?.await();', '', 'the event loop sends when the socket has room'),
    inConnection(
      "if (this.state === 'down') return this.puts.takeFailure() || this.status;",
      "if (this.state === 'down') return this.status;",
      'a flush of a connection that has ended reports an earlier failure first',
    ),
    inConnection(
      'if (this.puts.inFlight === 0 && this.gets.inFlight === 0 && !this.wantsWrite)',
      'if (this.puts.inFlight === 0 && !this.wantsWrite)',
      'a flush waits for gets',
    ),
    inConnection(
      'if (this.puts.inFlight === 0 && this.gets.inFlight === 0 && !this.wantsWrite)',
      'if (this.puts.inFlight === 0 && this.gets.inFlight === 0)',
      'a flush waits for messages',
    ),
    inConnection(
      '!this.wantsWrite) return this.puts.takeFailure();',
      '!this.wantsWrite) return Status.OK;',
      'a flush reports a failed put',
    ),
    inConnection('this.inbound.cancel(owner);\n', '', 'what the peer sends for a cancelled get is discarded'),
    inConnection('this.transmitter.cancel(owner);\n', '', 'a cancelled message uses no memory'),
    inConnection('this.puts.cancel(owner);\n', '', 'cancelled puts end'),
    inConnection('this.#flushes.cancel(owner);\n', '', 'cancelled flushes end'),
    inConnection(
      '!tcpIsEstablished(this.fd) && tcpUnreadBytes(this.fd) === 0',
      '!tcpIsEstablished(this.fd)',
      'a peer that has closed is not down before its data is read',
    ),
    inConnection(
      'if (this.isBroken) {\n      this.#endBroken();\n      return this.status;\n    }',
      '',
      'a check finds a failed send',
    ),
    inConnection('if (silenceMs > 0)\n', 'if (silenceMs < 0)\n', 'a silent peer has failed'),
    inConnection(
      'this.inbound.liveness.ask(this.fd, nowMs);',
      '',
      'a heartbeat notes since when the node of the peer has to answer',
    ),
    inConnection(
      'if (!this.transmitter.isBlocked) this.check(this.transmitter.signal(FrameType.HEARTBEAT, intervalMs));',
      'this.check(this.transmitter.signal(FrameType.HEARTBEAT, intervalMs));',
      'no heartbeats are queued for a peer that does not read',
    ),
    inConnection(
      "if (this.#hasLeft || this.state === 'down') return;",
      "if (this.state === 'down') return;",
      'an end leaves once',
    ),
    inConnection(
      "if (this.state === 'idle') this.fail(Status.CANCELED, '');\n    else",
      '',
      'an end that never connected is down when it leaves',
    ),
    inConnection('if (this.#hasLeft) this.#sendBye();', '', 'an end that left before it was connected tells the peer'),
    inConnection(
      "if (this.departure === 'self' && this.state === 'waiting') this.#hasLeft = false;",
      "if (this.departure === 'self') this.#hasLeft = false;",
      'a connection whose peer was told is not used again',
    ),
    inConnection(
      "if (this.departure === 'self' && this.state === 'waiting') this.#hasLeft = false;",
      '',
      'a retired connection can be used again until the peer was told',
    ),
    inConnection(
      'this.check(this.transmitter.signal(FrameType.BYE));\n    this.#closeIfUnused();',
      'this.check(this.transmitter.signal(FrameType.BYE));',
      'the end that leaves last closes the connection',
    ),
    inConnection(
      'poll < DRAIN_POLLS && tcpRecv(this.fd, rx.address, rx.byteLength) > 0',
      'false',
      'closing reads the data of the peer first',
    ),
    inConnection('close(): void {\n    this.endBatch();', 'close(): void {', 'closing sends the batch'),
    inConnection(
      "if (this.state === 'down') return;\n    this.state = 'down';",
      "this.state = 'down';",
      'a connection ends once',
    ),
    inConnection(
      'this.inbound.isUp = false;\n    this.#reports',
      'this.#reports',
      'no frame is delivered after the end',
    ),
    inConnection(
      'this.#reports.onDown(this, reason);\n    if (this.fd >= 0) tcpClose(this.fd);',
      'if (this.fd >= 0) tcpClose(this.fd);\n    this.#reports.onDown(this, reason);',
      'the descriptor is open until the end was reported',
    ),
    inConnection('if (this.fd >= 0) tcpClose(this.fd);\n', '', 'the end of a connection closes its socket'),
    inConnection('this.#records?.close();', '', 'the end of a connection releases its records'),
    inConnection('this.transmitter.close(status);', '', 'queued messages end with the connection'),
    inConnection('this.inbound.close(status);', '', 'puts and gets end with the connection'),
    inConnection('this.#flushes.close(status);', '', 'flushes end with the connection'),
    inConnection('if (transmitter.moved !== before) this.inbound.events += 1;', '', 'bytes that move are progress'),
    inConnection(
      'if (this.#flushes.length > 0 && this.isUp) this.#flushes.settle(this.transmitter.released);',
      '',
      'a flush ends when its messages were sent',
    ),
    inConnection(
      'if (this.isUp) this.#closeIfUnused();\n  }\n\n  /** Closes a',
      '}\n\n  /** Closes a',
      'a connection that both ends have left ends with its last frame',
    ),
    inConnection(
      'this.inbound.hasBye && (this.#hasLeft || this.users === 0)',
      'this.inbound.hasBye && this.#hasLeft',
      'a connection that this end never used ends when the peer leaves',
    ),
    inConnection('if (isDone && this.transmitter.isEmpty)', 'if (isDone)', 'a connection ends after its last frame'),
    inConnection(
      '} else if (this.isBroken) this.#endBroken();\n    else if',
      '} else if',
      'a failed send is the reason for the end, not the reset that follows',
    ),
    inConnection(
      "else if (this.departure === 'both') this.fail(Status.CANCELED, '');\n",
      '',
      'ends that have both left close without a failure',
    ),
    inTable('this.#remove(link);\n      onDown', 'onDown', 'a connection has left the table at its end'),
    inTable(
      'this.#all.add(link);\n    link.attach',
      'link.attach',
      'an accepted connection is closed with its interface',
    ),
    inTable(
      'link.room = new Room(fd, this.making, () => link.sendReported());',
      '',
      'the event loop sends the messages reported as sent',
    ),
    inTable(
      'link.heartbeat(this.#heartbeatMs);\n    this.#heartbeats',
      'this.#heartbeats',
      'a new connection begins with a heartbeat',
    ),
    inTable('this.#heartbeats.start();', '', 'connections have heartbeats'),
    inTable('this.shared.sleeper.wake();', '', 'a new connection wakes the operations that wait for it'),
    inTable(
      'this.making.poll();\n      this.#makingAlarm?.arm();',
      'this.making.poll();',
      'the event loop continues to establish connections',
    ),
    inTable(
      'if (link.hasMore || (link.isUp && blocked.size === 1)) continue;',
      'if (link.isUp && blocked.size === 1) continue;',
      'a connection with more to do stays',
    ),
    inTable(
      'if (link.isUp) ready.update(link);',
      '',
      'a socket that has room again does not end every sleep',
      'the next poll of the set does the same, after one sleep that ends early',
    ),
    inTable('link.acknowledge();\n', '', 'acknowledgements leave before a sleep'),
    inTable('if (link.isBroken) return false;', '', 'no sleep begins with a failed connection'),
    inTable('if (link.isUp) this.ready.update(link);', '', 'a sleep ends when a blocked socket has room'),
    inTable('this.#heartbeats.close();', '', 'an interface that has closed sends no heartbeats'),
    inTable('for (const link of this.#all) link.close();', '', 'connections end with their interface'),
    inTable('this.#makingAlarm?.close();', '', 'a closed interface releases its alarm'),
    inTable('this.ready.close();\n', '', 'a closed interface releases its event set'),
    inTable('link.room?.close();', '', 'a connection that has ended is not watched for room'),
    inTable('if (reports.hot === link) reports.hot = undefined;', '', 'a connection that has ended is not polled'),
    inTable(
      'if (this.#links.get(link.identity) === link) this.#links',
      'this.#links',
      'the end of an old connection leaves the new one to its peer',
    ),
    inTable('return this.#all.size > 0;', 'return false;', 'heartbeats go on'),
    inInbound(
      'const WAITING_MAX: number = PUTS_MAX + 1024;',
      'const WAITING_MAX: number = PUTS_MAX + 2048;',
      'a peer that does not read its answers is refused at a limit',
    ),
    inInbound(
      "else if (this.transmitter.length > WAITING_MAX) return 'too many puts without reading the replies';\n",
      '',
      'a peer that does not read its answers is refused',
    ),
    inInbound(
      'this.#getAnswers.queued >= GETS_MAX',
      'this.#getAnswers.queued > GETS_MAX',
      'a peer has at most 64 gets at a time',
    ),
    inInbound(
      'if (byteLength > FRAME_BODY_BYTES_MAX) return `get',
      'if (byteLength < 0) return `get',
      'a get has at most the bytes of one frame',
    ),
    inInbound(
      'this.#sent.count = 1;\n      this.queued -= 1;',
      'this.#sent.count = 1;',
      'gets that were answered do not count',
    ),
    inInbound('this.#sent.count = 1;\n      this', 'this', 'each answer to a get is counted'),
    inInbound('isGood ? byteLength : 0);', 'byteLength);', 'the refusal of a get has no bytes'),
    inInbound(
      'answer.addEnd(isGood ? Status.OK : Status.INVALID_ADDR);',
      'answer.addEnd(Status.OK);',
      'the refusal of a get says so',
    ),
    inInbound(
      'if (get === undefined || !(isComplete || byteLength === 0)) {',
      'if (get === undefined) {',
      'an answer has the bytes that were asked for',
    ),
    inInbound(
      'this.#bodyStatus = isComplete ? Status.OK : Status.IO_ERROR;',
      'this.#bodyStatus = Status.OK;',
      'a get without its bytes has failed',
    ),
    inInbound(
      'this.payload.begin(byteLength, get.isCancelled);',
      'this.payload.begin(byteLength, false);',
      'the bytes of a cancelled get are discarded',
    ),
    inInbound(
      'get.owner = undefined;\n    get.iov = NO_MEMORY;',
      'get.owner = undefined;',
      'an answered get keeps no memory',
      'its list is that of the operation, which forgets its memory',
    ),
    inInbound('this.#freeGets.push(get);', '', 'a get is reused', 'it only saves an allocation'),
    inInbound('get.isCancelled = false;\n', '', 'a get that reuses a cancelled one is not cancelled'),
    inInbound(
      '!this.#isPut && this.#getOwner === owner) this.payload.isLost = true;',
      '!this.#isPut) this.payload.isLost = true;',
      'the get of another endpoint continues',
    ),
    inInbound(
      'if (this.payload.left > 0 && !this.#isPut && this.#getOwner === owner) this.payload.isLost = true;',
      '',
      'the rest of a cancelled get is discarded',
    ),
    inInbound(
      'if (this.payload.left > 0 && !this.#isPut && this',
      'if (this.payload.left > 0 && this',
      'a put of the peer continues when an endpoint cancels its gets',
    ),
    inInbound(
      'const end = outcome === Status.OK ? this.#bodyStatus : failureOfPeer(outcome);',
      'const end = this.#bodyStatus;',
      'a get fails as the peer says',
    ),
    inInbound(
      'const status = this.payload.isLost ? Status.INVALID_ADDR : end;',
      'const status = end;',
      'bytes for memory that was released are not acknowledged',
    ),
    inInbound('if (status >= 0) return `NACK', 'if (status > 0) return `NACK', 'a NACK has the status of a failure'),
    inInbound(
      'this.#answered(this.puts, count, Status.OK)\n',
      'this.#answered(this.puts, count, Status.OK) || true\n',
      'a peer acknowledges the messages sent to it',
    ),
    inInbound(
      "? NO_VIOLATION : 'unexpected NACK: no put is pending';",
      '? NO_VIOLATION : NO_VIOLATION;',
      'a NACK belongs to a message that was sent',
    ),
    inInbound('if (intervalMs > 0) this.liveness', 'this.liveness', 'an interval of heartbeats is positive'),
    inInbound('this.#shared.counters.received(frame.byteLength);', '', 'received messages are counted'),
    inInbound('frame.source = this.#identity;', '', 'a message names its sender'),
    inInbound(
      'this.#pendingGets.clear();',
      '',
      'a connection that has ended waits for no answer',
      'nothing reads them after the end of the connection',
    ),
    inInbound(
      'this.isLost = !memory.live || this',
      'this.isLost = this',
      'bytes for memory that was freed meanwhile are discarded',
    ),
    inInbound(
      '!memory.live || this.#offsets[this.#piece]! + this.#lengths[this.#piece]! > memory.byteLength;',
      '!memory.live;',
      'bytes for memory that was detached meanwhile are discarded',
    ),
    inInbound(
      'for (let i = 0; i < this.#count; i++) this.#memories[i] = undefined;',
      '',
      'the memory of a whole body is not kept',
      'it is kept until the next body only',
    ),
    inInbound(
      'if (bytes <= 0) skip -= entryBytes;',
      'if (bytes < 0) skip -= entryBytes;',
      'a part of a list that begins with an entry leaves the one before out',
      'an empty piece is not added, and the rest is the same',
    ),
    inInbound(
      'skip = 0;\n        left -= bytes;',
      'left -= bytes;',
      'the next entry of a list begins with its first byte',
    ),
    inInbound(
      'return location === 0 ? 0 : location',
      'return location',
      'bytes for memory without an address are copied',
    ),
    inInbound('if (byteLength === 0) return;\n', '', 'an empty entry of a list has no bytes'),
    inLiveness(
      'if (tcpAckedMs(fd) === 0) this.#askedMs = nowMs;',
      'this.#askedMs = nowMs;',
      'a node that has not answered is not given more time',
    ),
    inLiveness('if (signs === this.#signs) return;', '', 'only a new sign of life counts'),
    inLiveness(
      'Math.max(peerTimeoutMs, this.heartbeatMs * INTERVALS)',
      'peerTimeoutMs',
      'a peer with rare heartbeats is given their time',
    ),
    inLiveness('this.heartbeatMs > 0 && nowMs', 'nowMs', 'a peer without heartbeats is not silent'),
    inLiveness('&& tcpUnreadBytes(fd) === 0) return processMs;', ') return processMs;', 'unread data is not silence'),
    inLiveness(
      'tcpAckedMs(fd) > peerTimeoutMs && nowMs - this.#askedMs > peerTimeoutMs',
      'tcpAckedMs(fd) > peerTimeoutMs',
      'time in which this process slept is not silence of the node',
    ),
    inLiveness(
      'tcpAckedMs(fd) > peerTimeoutMs && nowMs - this.#askedMs > peerTimeoutMs',
      'nowMs - this.#askedMs > peerTimeoutMs',
      'a node that answers is not silent',
    ),
    inLiveness('&& word !== Status.NO_RESOURCE ? statusOf', '? statusOf', 'a peer cannot cause a repetition'),
    inLiveness('return FAILURES.has(word) && word', 'return word', 'an unknown status is a failure'),
    inLiveness(
      'code === Errno.ETIMEDOUT || code === Errno.EHOSTUNREACH ||',
      'code === Errno.EHOSTUNREACH ||',
      'a connection that timed out is a silent peer',
    ),
    inBuffers(
      'if (this.#vacate === vacate) return;\n    this.#vacate?.();',
      'if (this.#vacate === vacate) return;',
      'what another connection has left in the memory goes to it',
    ),
    inBuffers(
      'Math.max(restBytes, RECORD_PLAIN_BYTES_MAX)',
      'restBytes',
      'a record has room behind the rest of a frame',
    ),
    inBuffers('this.pieces.free();', '', 'closed buffers free their list'),
    inBuffers('this.tx.close();', '', 'closed buffers are unmapped'),
  ],
};
