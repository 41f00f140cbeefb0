import { describe, expect, it, vi } from 'vitest';

/** Number of memory descriptors that may still be created before creation fails. */
const remaining = vi.hoisted(() => ({ descriptors: 0 }));
vi.mock('../sys/index.ts', async (original) => {
  const sys = await original<typeof import('../sys/index.ts')>();
  const memfdCreate: typeof sys.memfdCreate = (name, options) => {
    if (remaining.descriptors-- <= 0) throw new sys.SyscallError('memfd_create', sys.Errno.EMFILE, name);
    return sys.memfdCreate(name, options);
  };
  const ftruncate: typeof sys.ftruncate = (fd, byteLength) => {
    if (remaining.descriptors === 0) throw new sys.SyscallError('ftruncate', sys.Errno.ENOMEM, `fd ${fd}`);
    sys.ftruncate(fd, byteLength);
  };
  return { ...sys, memfdCreate, ftruncate };
});

const { mappedMemoryStatistics, openFileDescriptors, scratchStatistics } = await import('../sys/index.ts');
const { createEmulatedNode } = await import('./index.ts');

/** Descriptors and mappings of this thread. */
function held(): readonly number[] {
  const { liveBlocks, arenaBytes } = scratchStatistics();
  return [openFileDescriptors(), mappedMemoryStatistics().liveMappings - arenaBytes / 65536, liveBlocks];
}

describe('a node whose construction fails', () => {
  // Creating the nth memory fails; a failure may also occur after the descriptor exists and before it has a size. Each card has two memories.
  it.each([0, 1, 2, 3, 5])('holds nothing when %i memories could be made', (descriptors) => {
    const before = held();
    remaining.descriptors = descriptors;
    expect(() => createEmulatedNode({ cards: 4 })).toThrow(/memfd_create|ftruncate/);
    expect(held()).toEqual(before);
  });

  it('does not prevent the construction of another node', () => {
    remaining.descriptors = 100;
    const before = held();
    createEmulatedNode({ cards: 4 }).close();
    expect(held()).toEqual(before);
  });
});
