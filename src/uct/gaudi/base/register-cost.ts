/** What the registration of host memory with a card is estimated to cost, besides UCX_GAUDI_COPY_REG_COST. */

/** Growth of the cost: the driver pins page by page. */
export const REGISTER_NS_PER_BYTE = 0.03;
