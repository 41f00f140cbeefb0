/** Names of gaudi_ipc. */

/** Name of component, memory domain and transport. */
export const GAUDI_IPC_NAME = 'gaudi_ipc';
/** The other names that UCX_TLS accepts for the transport. */
export const GAUDI_IPC_ALIASES: readonly string[] = ['gaudi'];
