import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { mapAnonymous, PAGE_SIZE } from '../base/mapped-memory.ts';
import { close } from '../file/file.ts';
import { OWN_ADDRESS_SPACE, openAddressSpace, readAddressSpace, writeAddressSpace } from './memory.ts';

/** A process that prints the address of 16 bytes of its memory, and waits. */
async function startProcess(): Promise<readonly [ChildProcess, number]> {
  const program = `import koffi from 'koffi';
    globalThis.memory = Buffer.alloc(16384, 7);
    console.log(String(koffi.address(memory)));
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return [child, Number(line.toString())];
}

describe('an address space', () => {
  it('of this process is accessible without a descriptor, up to the first page that is not mapped', () => {
    using memory = mapAnonymous(2 * PAGE_SIZE);
    memory.u8.fill(6, 0, 100);
    expect(readAddressSpace(OWN_ADDRESS_SPACE, memory.address, memory.address + PAGE_SIZE, 100)).toBe(100);
    expect(memory.u8[PAGE_SIZE + 99]).toBe(6);
    expect(writeAddressSpace(OWN_ADDRESS_SPACE, PAGE_SIZE, memory.address, 8)).toBe(0);
    expect(readAddressSpace(OWN_ADDRESS_SPACE, PAGE_SIZE, memory.address, 8)).toBe(0);
  });

  it('of another process is accessible until the process ends', async () => {
    const [child, address] = await startProcess();
    using memory = mapAnonymous(PAGE_SIZE);
    const space = openAddressSpace(child.pid!);
    expect(readAddressSpace(space, address, memory.address, 64)).toBe(64);
    expect(memory.u8.subarray(0, 64)).toEqual(new Uint8Array(64).fill(7));
    memory.u8.fill(9, 0, 8);
    expect(writeAddressSpace(space, address + 8, memory.address, 8)).toBe(8);
    expect(readAddressSpace(space, address, memory.address, 32)).toBe(32);
    expect([...memory.u8.subarray(6, 18)]).toEqual([7, 7, 9, 9, 9, 9, 9, 9, 9, 9, 7, 7]);
    expect(readAddressSpace(space, PAGE_SIZE, memory.address, 8)).toBe(0);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(readAddressSpace(space, address, memory.address, 8)).toBe(0);
    expect(writeAddressSpace(space, address, memory.address, 8)).toBe(0);
    close(space);
  });

  it('of no process throws ENOENT', () => {
    expect(() => openAddressSpace(2 ** 22)).toThrow(/ENOENT/);
  });
});
