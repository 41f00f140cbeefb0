/**
 * UCT without UCP: gaudi_copy allocates device memory, the memory domain of a transport registers it and packs its key, and an endpoint puts to it. First over
 * gaudi_ipc, from another card; then over ib, from the HBM of a card to that of another one. Both sides are in this process; the bytes that a peer needs are
 * the packed key and the address of the interface.
 *
 * The node is emulated; on a real one it is `openDriverNode()`.
 */

import { createEmulatedNode } from '../src/emulator/index.ts';
import { MemoryType, Status, statusName } from '../src/index.ts';
import {
  type Completion,
  GaudiResources,
  gaudiCopyComponent,
  gaudiIpcComponent,
  type Iface,
  type IovEntry,
  ibComponent,
  type MdMemory,
  type MemoryDomain,
} from '../src/uct.ts';

const BYTES = 2 ** 20;

/** Runs an operation to its end: starts it again while there is no room, and drives progress until its completion is called. */
async function complete(iface: Iface, start: (completion: Completion) => Status): Promise<void> {
  const completion = {
    count: 1,
    failure: Status.OK as Status,
    isDone: false,
    onComplete(): void {
      this.isDone = true;
    },
  };
  let status = start(completion);
  while (status === Status.NO_RESOURCE) {
    if (iface.progress() === 0) await iface.wait(1e6);
    status = start(completion);
  }
  while (status === Status.INPROGRESS && !completion.isDone) if (iface.progress() === 0) await iface.wait(1e6);
  const ended = status === Status.INPROGRESS ? completion.failure : status;
  if (ended !== Status.OK) throw iface.errorOf(ended) ?? new Error(statusName(ended));
}

/** The key of memory, as the bytes that its owner gives to a peer. */
function packedKey(md: MemoryDomain, memory: MdMemory): Uint8Array {
  const key = new Uint8Array(md.attributes.rkeyPackedBytes);
  md.mkeyPack(memory, key, 0);
  return key;
}

const all = (memory: MdMemory): IovEntry[] => [{ memory, offset: 0, byteLength: BYTES }];

const node = createEmulatedNode({ cards: 2, nics: 2 });
/** The memory domains of a program. */
interface Side {
  readonly copy: MemoryDomain;
  readonly ipc: MemoryDomain;
  readonly ib: MemoryDomain;
  close(): void;
}

/** Opens those of a program that has one card. */
function open(card: number): Side {
  const mappingTable = JSON.stringify([{ index: card, bus_id: node.cards()[card]!.busId }]);
  const cards = new GaudiResources({ node, mappingTable });
  // Log, clock and configuration have the defaults of a program.
  const [copy, ipc] = [gaudiCopyComponent(cards).openMd(), gaudiIpcComponent(cards).openMd()];
  const ib = ibComponent(node.verbs).openMd();
  const close = (): void => {
    for (const md of [ib, ipc, copy]) md.close();
  };
  return { copy, ipc, ib, close };
}

const [owner, peer] = [open(0), open(1)];
const allocated = owner.copy.memAlloc(BYTES, { memoryType: MemoryType.GAUDI });
console.log(`gaudi_copy allocated ${allocated.byteLength} bytes on card ${allocated.sysDevice}`);

// gaudi_ipc registers memory of gaudi_copy as it is; a peer unpacks the key, and its card puts.
const shared = owner.ipc.memReg(allocated);
const key = peer.ipc.rkeyUnpack(packedKey(owner.ipc, shared));
const there = owner.ipc.openIface(owner.ipc.resources[0]!);
const iface = peer.ipc.openIface(peer.ipc.resources[0]!);
const endpoint = iface.connect(there.address);
const source = peer.ipc.memReg(new Uint8Array(BYTES).fill(42));
await complete(iface, (completion) => endpoint.putZcopy(all(source), 0, key, completion));
await complete(iface, (completion) => endpoint.flush(completion));
console.log(`put over gaudi_ipc: ${JSON.stringify(key.describe?.()?.channels)} are its channels`);

// A network knows no vendor: it registers a dma-buf.
const registered = (side: Side, memory: MdMemory): MdMemory => {
  const { address, byteLength, memoryType, sysDevice } = memory;
  const dmabuf = side.copy.memExportDmabuf(address, byteLength);
  const { fd, offset } = dmabuf;
  const made = side.ib.memRegDmabuf!({ fd, offset, byteLength, address, memoryType, sysDevice });
  dmabuf.close();
  return made;
};
const ownerIb = registered(owner, allocated);
const far = peer.copy.memAlloc(BYTES, { memoryType: MemoryType.GAUDI });
const farIb = registered(peer, far);
const rdma = owner.ib.openIface(owner.ib.resources[0]!);
const farRdma = peer.ib.openIface(peer.ib.resources[1]!);
const farKey = owner.ib.rkeyUnpack(packedKey(peer.ib, farIb));
const connection = rdma.connect(farRdma.address);
const serving = setInterval(() => farRdma.progress(), 1);
await complete(rdma, (completion) => connection.putZcopy(all(ownerIb), 0, farKey, completion));
await complete(rdma, (completion) => connection.flush(completion));
clearInterval(serving);
console.log('put over rc, from HBM to HBM');

// The card of the peer reads what has arrived.
const target = new Uint8Array(BYTES);
const copier = peer.copy.openIface(peer.copy.resources[0]!);
const reader = copier.connect(copier.address);
const [host, ownKey] = [peer.copy.memReg(target), peer.copy.rkeyUnpack(packedKey(peer.copy, far))];
await complete(copier, (completion) => reader.getZcopy(all(host), 0, ownKey, completion));

for (const each of [key, farKey, ownKey]) each.release();
owner.ib.memDereg(ownerIb);
peer.ib.memDereg(farIb);
owner.ipc.memDereg(shared);
owner.copy.memFree(allocated);
for (const side of [peer, owner]) side.close();
node.close();
console.log(target.every((byte) => byte === 42) ? 'the same bytes arrived' : 'other bytes arrived');
