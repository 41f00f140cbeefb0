/** Signed reports of the firmware: cut to their lengths, with the nonce of the request. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { scriptedCard } from '../../../test/fixtures/driver/scripted-file.ts';
import { HL_INFO_SEC_ATTEST } from '../../uapi/index.ts';
import { GaudiErrorCode, getDevInfoSigned, getSecAttestInfo, openControl } from '../index.ts';

const NONCE = 0xdeadbeef;
const fixture = useEmulatedDevice();

describe.each(['gaudi2', 'gaudi'] as const)('reports of %s', (asic) => {
  it('come from the emulated firmware, whose fields are empty', () => {
    const device = fixture.setUp({ asic });
    using control = openControl(fixture.node, 0);
    const nothing = new Uint8Array(0);
    for (const target of [device, control]) {
      expect(getSecAttestInfo(target, NONCE)).toEqual({
        nonce: NONCE,
        pcrNumReg: 0,
        pcrRegLen: 0,
        pcrData: nothing,
        pcrQuote: nothing,
        quoteSig: nothing,
        publicData: nothing,
        certificate: nothing,
      });
      expect(getDevInfoSigned(target, NONCE)).toMatchObject({ nonce: NONCE, devInfo: nothing, infoSig: nothing });
    }
    for (const nonce of [-1, 0.5, 2 ** 32]) {
      const refusal = { code: GaudiErrorCode.INVALID_PARAMS, details: expect.objectContaining({ argument: 'nonce' }) };
      expect(() => getSecAttestInfo(device, nonce)).toThrow(expect.objectContaining(refusal));
      expect(() => getDevInfoSigned(device, nonce)).toThrow(expect.objectContaining(refusal));
    }
  });
});

it('cuts a report to its lengths', () => {
  const { card, close } = scriptedCard((view) => {
    const bytes = (byteLength: number, first: number): Uint8Array => {
      const field = new Uint8Array(byteLength);
      field.fill(first, 0, 8);
      return field;
    };
    const values = {
      nonce: NONCE,
      pcr_num_reg: 2,
      pcr_reg_len: 3,
      pcr_quote_len: 4,
      quote_sig_len: 5,
      pub_data_len: 6,
      certificate_len: 0xffff,
      pcr_data: bytes(256, 1),
      pcr_quote: bytes(510, 2),
      quote_sig: bytes(255, 3),
      public_data: bytes(510, 4),
      certificate: bytes(2046, 5),
    };
    HL_INFO_SEC_ATTEST.encode(values, view);
    return HL_INFO_SEC_ATTEST.size;
  });
  const info = getSecAttestInfo({ card }, NONCE);
  expect([...info.pcrData]).toEqual([1, 1, 1, 1, 1, 1]);
  expect([...info.pcrQuote]).toEqual([2, 2, 2, 2]);
  expect([info.quoteSig.byteLength, info.publicData.byteLength]).toEqual([5, 6]);
  // Longer than the field: cut to the field.
  expect(info.certificate.byteLength).toBe(2046);
  close();
});

it('returns the error of the firmware', () => {
  const { card, close } = scriptedCard(() => -95);
  expect(() => getSecAttestInfo({ card }, 1)).toThrow(expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS }));
  expect(() => getDevInfoSigned({ card }, 1)).toThrow(/EOPNOTSUPP/);
  close();
});
