/**
 * Signed reports of a card's firmware about its boot and about the device. Programs verify the signatures and certificates.
 *
 * Source: hlthunk_get_sec_attest_info and hlthunk_get_dev_info_signed of hl-thunk; sec_attest_info and dev_info_signed of Linux 6.12.
 */

import { HL_INFO_OP, HL_INFO_SEC_ATTEST, HL_INFO_SIGNED } from '../../uapi/index.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import { checkWord32 } from '../base/gaudi-error.ts';

/** Common fields of both reports. */
interface SignedReport {
  /** The nonce of the request, which is part of the signed data and so proves that the report is new. */
  readonly nonce: number;
  /** Public key area of the attestation key (TPMT_PUBLIC). */
  readonly publicData: Uint8Array;
  /** Certificate of the attestation key. */
  readonly certificate: Uint8Array;
}

/** The report about the boot. */
export interface SecAttestInfo extends SignedReport {
  /** Number of platform configuration registers. */
  readonly pcrNumReg: number;
  /** Length of a PCR register in bytes. */
  readonly pcrRegLen: number;
  /** The registers, concatenated. */
  readonly pcrData: Uint8Array;
  /** Attestation data (TPMS_ATTEST). */
  readonly pcrQuote: Uint8Array;
  /** Signature of the attestation data. */
  readonly quoteSig: Uint8Array;
}

/** The report about the device. */
export interface DevInfoSigned extends SignedReport {
  /** The signed report of the firmware. */
  readonly devInfo: Uint8Array;
  /** Signature of the data and the nonce. */
  readonly infoSig: Uint8Array;
}

/**
 * The attestation report of the boot (hlthunk_get_sec_attest_info).
 * @param nonce 32 bits
 * @throws UcxError ERR_GAUDI_* by the errno of the firmware
 */
export function getSecAttestInfo(target: CardTarget, nonce: number): SecAttestInfo {
  checkWord32('nonce', nonce);
  const input = { sec_attest_nonce: nonce };
  const info = cardOf(target).info(HL_INFO_OP.SECURED_ATTESTATION, HL_INFO_SEC_ATTEST, 'getSecAttestInfo', input);
  return {
    nonce: info.nonce,
    pcrNumReg: info.pcr_num_reg,
    pcrRegLen: info.pcr_reg_len,
    pcrData: info.pcr_data.slice(0, info.pcr_num_reg * info.pcr_reg_len),
    pcrQuote: info.pcr_quote.slice(0, info.pcr_quote_len),
    quoteSig: info.quote_sig.slice(0, info.quote_sig_len),
    publicData: info.public_data.slice(0, info.pub_data_len),
    certificate: info.certificate.slice(0, info.certificate_len),
  };
}

/**
 * The signed report about the device (hlthunk_get_dev_info_signed). Since Linux 6.8.
 * @param nonce 32 bits
 * @throws UcxError like {@link getSecAttestInfo}
 */
export function getDevInfoSigned(target: CardTarget, nonce: number): DevInfoSigned {
  checkWord32('nonce', nonce);
  const input = { sec_attest_nonce: nonce };
  const info = cardOf(target).info(HL_INFO_OP.DEV_SIGNED, HL_INFO_SIGNED, 'getDevInfoSigned', input);
  return {
    nonce: info.nonce,
    devInfo: info.dev_info.slice(0, info.dev_info_len),
    infoSig: info.info_sig.slice(0, info.info_sig_len),
    publicData: info.public_data.slice(0, info.pub_data_len),
    certificate: info.certificate.slice(0, info.certificate_len),
  };
}
