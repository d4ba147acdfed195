// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import (
	"maps"
	"slices"
)

// Same reports whether both decide the same: until when they hold does not count, nor do reasons.
func (d *Dynamic) Same(o *Dynamic) bool {
	return d.Known == o.Known && d.BECPUs.Equal(o.BECPUs) && d.BESharesLSR == o.BESharesLSR &&
		slices.EqualFunc(d.SharePools, o.SharePools, samePool) && slices.EqualFunc(d.BESharePools, o.BESharePools, samePool) &&
		d.SystemQoS.Equal(o.SystemQoS) && d.SystemQoSExclusive == o.SystemQoSExclusive && d.Normalization == o.Normalization &&
		maps.EqualFunc(d.Quotas, o.Quotas, sameQuotas) &&
		maps.EqualFunc(d.MemoryHigh, o.MemoryHigh, func(a, b MemoryHigh) bool { return a.Bytes == b.Bytes })
}

func samePool(a, b Pool) bool {
	return a.Socket == b.Socket && a.Node == b.Node && a.CPUs.Equal(b.CPUs)
}

func sameQuotas(a, b QuotaLoop) bool {
	return a.Plus == b.Plus && a.Cap == b.Cap && maps.Equal(a.Factors, b.Factors)
}
