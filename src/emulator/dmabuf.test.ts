import { describe, expect, it } from 'vitest';
import { ChannelClient } from '../../test/contract/driver/channel-client.ts';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { close, dup, Errno, mapAnonymous, openFileDescriptors, pipe2 } from '../sys/index.ts';
import {
  ASIC_PROFILES,
  HL_INFO_OP,
  HL_INFO_RESET_COUNT,
  HL_PAGE_FAULT_INFO,
  linDmaCtl,
  writeLinDma,
} from '../uapi/index.ts';
import { createEmulatedNode } from './index.ts';

const PAGE = 4096;
const BYTES = 65536;

type Asic = 'gaudi2' | 'gaudi3';

/** Two cards, each with an open file and mapped host memory, of a driver that imports. */
function setUp(asic: Asic) {
  const node = createEmulatedNode({ asic, cards: 2, dmaThreads: 0, importDmabuf: true });
  const clients = [new DriverClient(node.open(0)), new DriverClient(node.open(1))] as const;
  const host = mapAnonymous(4 * BYTES);
  const hostVas = clients.map((client) => client.mapHost(host.address, host.byteLength).out);
  const channel = (card: 0 | 1): ChannelClient =>
    new ChannelClient(clients[card], ASIC_PROFILES[asic], 0, {
      ring: new Uint32Array(host.buffer, 2 * BYTES, 1024),
      ringVa: hostVas[card]! + BigInt(2 * BYTES),
      counter: new Uint32Array(host.buffer, 3 * BYTES, 2),
      counterAddress: host.address + 3 * BYTES,
      counterVa: hostVas[card]! + BigInt(3 * BYTES),
    });
  const copy = (card: 0 | 1, source: bigint, destination: bigint, byteLength: number) => {
    if (!ASIC_PROFILES[asic].capabilities.submits) {
      const used = channel(card);
      used.copy(source, destination, byteLength);
      used.close();
      return;
    }
    const words = new Uint32Array(host.buffer, 3 * BYTES);
    const half = (value: bigint): [number, number] => [Number(value & 0xffff_ffffn), Number(value >> 32n)];
    writeLinDma(words, 0, linDmaCtl('gaudi2'), byteLength, ...half(source), ...half(destination));
    const { out } = clients[card].submit([{ queue: 8, cb: hostVas[card]! + BigInt(3 * BYTES), byteLength: 24 }]);
    expect(clients[card].wait(out.seq)).toMatchObject({ result: 0, out: { status: 0 } });
  };
  /** Starts a copy that a page fault ends: a queue completes it nevertheless, a channel stops. */
  const fault = (card: 0 | 1, source: bigint, destination: bigint, byteLength: number) => {
    if (ASIC_PROFILES[asic].capabilities.submits) {
      copy(card, source, destination, byteLength);
      return;
    }
    const used = channel(card);
    used.transfer(source, destination, byteLength);
    used.submit();
    used.close();
  };
  const device = (card: 0 | 1) => clients[card].mapDevice(clients[card].allocate(1).out).out;
  const done = () => {
    for (const client of clients) client.close();
    host.close();
    node.close();
  };
  return { node, clients, host, hostVas, copy, fault, device, done };
}

describe.each(['gaudi2', 'gaudi3'] as const)('dma-buf import on %s', (asic) => {
  it('reaches the memory of another card', () => {
    const { clients, host, hostVas, copy, device, done } = setUp(asic);
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
    const { clients, device, done } = setUp(asic);
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

  it.each(['hard-reset', 'unplug'] as const)('loses the memory by %s of its card', (kind) => {
    const { node, clients, fault, device, done } = setUp(asic);
    const [exporter, importer] = clients;
    const { out: fd } = exporter.exportDmabuf(device(0), BYTES);
    const peer = importer.importDmabuf(fd, BYTES).out;
    const own = device(1);
    node.inject(0, { kind });
    expect(importer.importDmabuf(fd, PAGE).result).toBe(-Errno.ENXIO);
    fault(1, own, peer, PAGE);
    expect(importer.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(peer);
    // After the error of a channel, the driver resets the card.
    expect(importer.unmap(peer)).toBe(ASIC_PROFILES[asic].capabilities.submits ? 0 : -Errno.EBUSY);
    close(fd);
    done();
  });

  it('causes no reset if every descriptor was closed', () => {
    const { node, clients, device, done } = setUp(asic);
    const { out: fd } = clients[0].exportDmabuf(device(0), BYTES);
    close(fd);
    expect(clients[0].info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out.hard_reset_cnt).toBe(0);
    clients[0].close();
    expect(node.card(0).hardResets).toBe(0);
    done();
  });

  it('is not available with the upstream driver, nor with the public driver of gaudi3', () => {
    // Without the option, a node has the driver that its generation has.
    const node = createEmulatedNode({ asic, cards: 1, ...(asic === 'gaudi3' ? {} : { importDmabuf: false }) });
    const client = new DriverClient(node.open(0));
    const { out: fd } = client.exportDmabuf(client.mapDevice(client.allocate(1).out).out, PAGE);
    expect(client.importDmabuf(fd, PAGE).result).toBe(-Errno.EINVAL);
    close(fd);
    client.close();
    node.close();
  });
});

it('of gaudi2 loses the memory when the exporter closes, which resets its card', () => {
  const { node, clients, copy, device, done } = setUp('gaudi2');
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

it('of gaudi3 keeps the memory when the exporter closes, until the last descriptor is closed', async () => {
  const { node, clients, copy, device, done } = setUp('gaudi3');
  const [exporter, importer] = clients;
  const { out: fd } = exporter.exportDmabuf(device(0), BYTES);
  const peer = importer.importDmabuf(fd, BYTES).out;
  exporter.close();
  copy(1, peer, device(1), PAGE);
  close(fd);
  copy(1, peer, device(1), PAGE);
  expect(node.card(0).hardResets).toBe(0);
  expect(importer.unmap(peer)).toBe(0);
  await expect.poll(() => node.card(0).hardResets).toBe(1);
  done();
});
