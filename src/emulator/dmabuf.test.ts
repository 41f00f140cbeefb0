import { describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { close, dup, Errno, mapAnonymous, openFileDescriptors, pipe2 } from '../sys/index.ts';
import { HL_INFO_OP, HL_INFO_RESET_COUNT, HL_PAGE_FAULT_INFO, linDmaCtl, writeLinDma } from '../uapi/index.ts';
import { createEmulatedNode } from './index.ts';

const PAGE = 4096;
const BYTES = 65536;

/** Two cards, each with an open file; host memory is mapped for the second card. */
function setUp() {
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
  const clients = [new DriverClient(node.open(0)), new DriverClient(node.open(1))] as const;
  const host = mapAnonymous(4 * BYTES);
  const hostVas = clients.map((client) => client.mapHost(host.address, host.byteLength).out);
  const copy = (card: 0 | 1, source: bigint, destination: bigint, byteLength: number) => {
    const words = new Uint32Array(host.buffer, 3 * BYTES);
    const half = (value: bigint): [number, number] => [Number(value & 0xffff_ffffn), Number(value >> 32n)];
    writeLinDma(words, 0, linDmaCtl('gaudi2'), byteLength, ...half(source), ...half(destination));
    const { out } = clients[card].submit([{ queue: 8, cb: hostVas[card]! + BigInt(3 * BYTES), byteLength: 24 }]);
    expect(clients[card].wait(out.seq)).toMatchObject({ result: 0, out: { status: 0 } });
  };
  const device = (card: 0 | 1) => clients[card].mapDevice(clients[card].allocate(1).out).out;
  const done = () => {
    for (const client of clients) client.close();
    host.close();
    node.close();
  };
  return { node, clients, host, hostVas, copy, device, done };
}

describe('dma-buf import', () => {
  it('reaches the memory of another card', () => {
    const { clients, host, hostVas, copy, device, done } = setUp();
    const fds = openFileDescriptors();
    const [exporter, importer] = clients;
    const memory = device(0);
    for (let i = 0; i < BYTES; i++) host.u8[i] = i * 13;
    copy(0, hostVas[0]!, memory + BigInt(PAGE), BYTES);
    const { out: fd } = exporter.exportDmabuf(memory, BYTES, PAGE);
    const { result, out: peer } = importer.importDmabuf(fd, BYTES);
    expect(result).toBe(0);
    close(fd);
    const own = device(1);
    copy(1, peer, own, BYTES);
    copy(1, own, hostVas[1]! + BigInt(BYTES), BYTES);
    expect(Buffer.compare(host.u8.subarray(0, BYTES), host.u8.subarray(BYTES, 2 * BYTES))).toBe(0);
    // The importer holds the memory of the exporter until it unmaps.
    expect(exporter.unmap(memory)).toBe(-Errno.EINVAL);
    expect(importer.unmap(peer)).toBe(0);
    expect(importer.unmap(peer)).toBe(-Errno.EINVAL);
    expect(exporter.unmap(memory)).toBe(0);
    expect(openFileDescriptors()).toBe(fds);
    done();
  });

  it('rejects closed and foreign descriptors and wrong lengths', () => {
    const { clients, device, done } = setUp();
    const [reading, writing] = pipe2();
    expect(clients[1].importDmabuf(reading, PAGE)).toEqual({ result: -Errno.EINVAL, out: 0n });
    close(writing);
    const { out: fd } = clients[0].exportDmabuf(device(0), PAGE);
    expect(clients[1].importDmabuf(fd, 0).result).toBe(-Errno.EINVAL);
    expect(clients[1].importDmabuf(fd, PAGE + 1).result).toBe(-Errno.EINVAL);
    const copy = dup(fd);
    close(fd);
    expect(clients[1].importDmabuf(copy, PAGE).result).toBe(0);
    close(copy);
    close(reading);
    expect(clients[1].importDmabuf(reading, PAGE).result).toBe(-Errno.EBADF);
    expect(clients[1].importDmabuf(-1, PAGE).result).toBe(-Errno.EBADF);
    done();
  });

  it('loses the memory when the exporter closes, which resets its card', () => {
    const { node, clients, copy, device, done } = setUp();
    const [exporter, importer] = clients;
    const { out: fd } = exporter.exportDmabuf(device(0), BYTES);
    const peer = importer.importDmabuf(fd, BYTES).out;
    exporter.close();
    expect(node.card(0).hardResets).toBe(1);
    expect(importer.importDmabuf(fd, PAGE).result).toBe(-Errno.EINVAL);
    copy(1, peer, device(1), PAGE);
    expect(importer.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(peer);
    expect(importer.unmap(peer)).toBe(0);
    close(fd);
    done();
  });

  it.each(['hard-reset', 'unplug'] as const)('loses the memory by %s of its card', (kind) => {
    const { node, clients, copy, device, done } = setUp();
    const [exporter, importer] = clients;
    const { out: fd } = exporter.exportDmabuf(device(0), BYTES);
    const peer = importer.importDmabuf(fd, BYTES).out;
    const own = device(1);
    node.inject(0, { kind });
    copy(1, own, peer, PAGE);
    expect(importer.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(peer);
    expect(importer.importDmabuf(fd, PAGE).result).toBe(-Errno.ENXIO);
    expect(importer.unmap(peer)).toBe(0);
    close(fd);
    done();
  });

  it('causes no reset if every descriptor was closed', () => {
    const { node, clients, device, done } = setUp();
    const { out: fd } = clients[0].exportDmabuf(device(0), BYTES);
    close(fd);
    expect(clients[0].info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out.hard_reset_cnt).toBe(0);
    clients[0].close();
    expect(node.card(0).hardResets).toBe(0);
    done();
  });

  it('is not available with the upstream driver', () => {
    const node = createEmulatedNode({ cards: 1, importDmabuf: false });
    const client = new DriverClient(node.open(0));
    expect(client.importDmabuf(0, PAGE).result).toBe(-Errno.EINVAL);
    client.close();
    node.close();
  });
});
