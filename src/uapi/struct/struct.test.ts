import fc from 'fast-check';
import { describe, expect, expectTypeOf, it } from 'vitest';
import { ALL_STRUCTS } from '../../../test/fixtures/uapi/compiled-layout.ts';
import {
  defineStruct,
  type FieldLayout,
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_OUT,
  HL_INFO_HW_IP_INFO,
  HL_INFO_HW_IP_INFO_6_1,
  HL_MEM_IN,
  HL_MEM_OUT,
  HL_PAGE_FAULT_INFO,
  HL_WAIT_CS_ARGS,
  type Struct,
  type StructFields,
} from '../index.ts';

function viewOf(size: number): DataView {
  return new DataView(new ArrayBuffer(size));
}

function arbitraryOf(field: FieldLayout): fc.Arbitrary<unknown> {
  const [, element = '', count] = /^(\w+?)(?:\[(\d+)\])?$/.exec(field.kind) ?? [];
  const scalars: Record<string, fc.Arbitrary<unknown>> = {
    u8: fc.integer({ min: 0, max: 0xff }),
    u16: fc.integer({ min: 0, max: 0xffff }),
    u32: fc.integer({ min: 0, max: 0xffffffff }),
    s32: fc.integer(),
    u64: fc.bigInt({ min: 0n, max: 0xffffffffffffffffn }),
    s64: fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }),
  };
  const length = Number(count ?? 0);
  if (element === 'bytes') return fc.uint8Array({ minLength: length, maxLength: length });
  const scalar = scalars[element] ?? fc.constant(undefined);
  return count === undefined ? scalar : fc.array(scalar, { minLength: length, maxLength: length });
}

describe.each(ALL_STRUCTS.map((struct) => [`${struct.cName} (${struct.only ?? 'both'})`, struct] as const))(
  'codec of %s',
  (_name, described) => {
    const struct = described as Struct<StructFields>;

    it('gives every single field back and leaves the bytes outside it zero', () => {
      for (const field of struct.layout) {
        fc.assert(
          fc.property(arbitraryOf(field), fc.nat(16), (value, offset) => {
            const view = viewOf(struct.size + offset);
            struct.encode({ [field.name]: value } as never, view, offset);
            expect(struct.decode(view, offset)[field.name]).toEqual(value);
            const bytes = new Uint8Array(view.buffer);
            bytes.fill(0, offset + field.offset, offset + field.offset + field.size);
            expect(bytes.every((byte) => byte === 0)).toBe(true);
          }),
          { numRuns: 10 },
        );
      }
    });

    it('gives arbitrary bytes back after decode and encode', () => {
      fc.assert(
        fc.property(fc.uint8Array({ minLength: struct.size, maxLength: struct.size }), (bytes) => {
          const values = struct.decode(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
          const again = viewOf(struct.size);
          struct.encode(values, again);
          expect(Buffer.compare(new Uint8Array(again.buffer), bytes)).toBe(0);
        }),
        { numRuns: 10 },
      );
    });
  },
);

describe('words', () => {
  it('index the low 32-bit word of a field', () => {
    expect(HL_CS_ARGS.words.chunks_execute).toBe(2);
    expect(HL_CS_ARGS.words.cs_flags).toBe(9);
    expect(HL_CS_OUT.words.seq).toBe(0);
    expect(HL_CS_CHUNK.words.cb_size).toBe(3);
    expect(HL_WAIT_CS_ARGS.words.seq_arr_len).toBe(6);
    expect(HL_MEM_IN.words.map_host_mem_size).toBe(4);
  });

  it('see what the codec writes', () => {
    const words = new Uint32Array(12);
    HL_CS_ARGS.in.encode({ chunks_execute: 0x1122334455667788n }, new DataView(words.buffer));
    const at = HL_CS_ARGS.words.chunks_execute;
    expect([words[at], words[at + 1]]).toEqual([0x55667788, 0x11223344]);
  });
});

describe('types', () => {
  it('follow the table', () => {
    const values = HL_PAGE_FAULT_INFO.decode(viewOf(24));
    expectTypeOf(values).toEqualTypeOf<{ timestamp: bigint; addr: bigint; engine_id: number; pad: Uint8Array }>();
    expectTypeOf(HL_MEM_OUT.decode(viewOf(16)).fd).toEqualTypeOf<number>();
    expectTypeOf(HL_CS_CHUNK.decode(viewOf(64)).pad).toEqualTypeOf<readonly number[]>();
  });
});

describe('versions', () => {
  it('let a 6.1 answer be read as the beginning of a 6.12 one', () => {
    const view = viewOf(HL_INFO_HW_IP_INFO.size);
    HL_INFO_HW_IP_INFO_6_1.encode(
      { device_id: 0x1020, dram_page_size: 0x30000000n, number_of_user_interrupts: 7 },
      view,
    );
    const values = HL_INFO_HW_IP_INFO.decode(view);
    expect(values).toMatchObject({ device_id: 0x1020, dram_page_size: 0x30000000n, number_of_user_interrupts: 7 });
    expect(values.reserved_dram_size).toBe(0n);
  });
});

describe('encode', () => {
  const PAIR = defineStruct('pair', { small: 'u8', big: 'u64', text: 'bytes[4]', list: 'u16[2]', sign: 's32' });

  it('clears what is not given', () => {
    const view = viewOf(PAIR.size);
    new Uint8Array(view.buffer).fill(0xff);
    PAIR.encode({ text: new Uint8Array([1]) }, view);
    expect(PAIR.decode(view)).toEqual({ small: 0, big: 0n, text: new Uint8Array([1, 0, 0, 0]), list: [0, 0], sign: 0 });
  });

  it.each([
    ['a number above the field', { small: 256 }, 'pair.small is u8, got number 256'],
    ['a negative unsigned number', { small: -1 }, 'pair.small is u8, got number -1'],
    ['a fraction', { small: 0.5 }, 'pair.small is u8, got number 0.5'],
    ['not a number', { sign: Number.NaN }, 'pair.sign is s32, got number NaN'],
    ['a signed number above the field', { sign: 0x80000000 }, 'pair.sign is s32, got number 2147483648'],
    ['a bigint above 64 bits', { big: 1n << 64n }, 'pair.big is u64, got bigint 18446744073709551616'],
    ['a negative bigint', { big: -1n }, 'pair.big is u64, got bigint -1'],
    ['a number for a bigint', { big: 1 as unknown as bigint }, 'pair.big is u64, got number 1'],
    ['a bigint for a number', { small: 1n as unknown as number }, 'pair.small is u8, got bigint 1'],
    ['too many bytes', { text: new Uint8Array(5) }, 'pair.text has 4 elements, got 5'],
    ['a bad element', { list: [0, 65536] }, 'pair.list is u16[2], got number 65536'],
    ['a scalar for an array', { list: 3 as unknown as number[] }, 'pair.list has 2 elements, got number 3'],
    ['an array for a scalar', { small: [3] as unknown as number }, 'pair.small is u8, got an array'],
  ])('refuses %s and writes nothing', (_case, values, message) => {
    const view = viewOf(PAIR.size);
    new Uint8Array(view.buffer).fill(0xaa);
    expect(() => PAIR.encode(values, view)).toThrow(new RangeError(message));
    expect(new Uint8Array(view.buffer).every((byte) => byte === 0xaa)).toBe(true);
  });

  it('refuses a view that is too short, also when its buffer is not', () => {
    const view = new DataView(new ArrayBuffer(64), 0, PAIR.size - 1);
    expect(() => PAIR.encode({}, view)).toThrow(RangeError);
    expect(() => PAIR.decode(view)).toThrow(RangeError);
    expect(() => PAIR.decode(viewOf(PAIR.size), 1)).toThrow(RangeError);
    expect(() => PAIR.decode(viewOf(PAIR.size), -1)).toThrow(RangeError);
  });
});
