// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import (
	"maps"
	"slices"
)

// Same reports whether both decide the same: until when they hold does not count, nor do reasons.
func (d *Dynamic) Same(o *Dynamic) bool {
	return d.Known == o.Known && d.BECPUs.Equal(o.BECPUs) && d.BESharesLSR == o.BESharesLSR && d.BEQuota == o.BEQuota &&
		slices.EqualFunc(d.SharePools, o.SharePools, samePool) && slices.EqualFunc(d.BESharePools, o.BESharePools, samePool) &&
		d.SystemQoS.Equal(o.SystemQoS) && d.SystemQoSExclusive == o.SystemQoSExclusive && d.Normalization == o.Normalization && d.Network == o.Network &&
		maps.EqualFunc(d.Quotas, o.Quotas, sameQuotas) &&
		maps.EqualFunc(d.MemoryHigh, o.MemoryHigh, sameHigh) && maps.EqualFunc(d.OOMScores, o.OOMScores, sameScore) && maps.EqualFunc(d.DiskLimits, o.DiskLimits, sameLimit)
}

// Reach is whom a change of the dynamic state can bear on.
type Reach struct {
	// Everybody, or the containers of best-effort pods.
	Everybody, BestEffort bool
	// Pods by UID, Containers by id.
	Pods, Containers map[string]bool
}

// Reach compares with another state. Whoever it does not name is decided the same under both.
func (d *Dynamic) Reach(o *Dynamic) Reach {
	out := Reach{
		Everybody: d.Known != o.Known || d.BEQuota != o.BEQuota || !slices.EqualFunc(d.SharePools, o.SharePools, samePool) ||
			!slices.EqualFunc(d.BESharePools, o.BESharePools, samePool) || !d.SystemQoS.Equal(o.SystemQoS) ||
			d.SystemQoSExclusive != o.SystemQoSExclusive || d.Normalization != o.Normalization,
		BestEffort: !d.BECPUs.Equal(o.BECPUs) || d.BESharesLSR != o.BESharesLSR,
		Pods:       map[string]bool{}, Containers: map[string]bool{},
	}
	differ(d.Quotas, o.Quotas, sameQuotas, out.Pods)
	differ(d.DiskLimits, o.DiskLimits, sameLimit, out.Pods)
	differ(d.MemoryHigh, o.MemoryHigh, sameHigh, out.Containers)
	differ(d.OOMScores, o.OOMScores, sameScore, out.Containers)
	return out
}

// differ notes the keys whose values are not the same in both.
func differ[V any](a, b map[string]V, same func(V, V) bool, out map[string]bool) {
	for k, v := range a {
		if w, ok := b[k]; !ok || !same(v, w) {
			out[k] = true
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out[k] = true
		}
	}
}

func sameHigh(a, b MemoryHigh) bool { return a.Bytes == b.Bytes }

func sameScore(a, b OOMScore) bool { return a.Score == b.Score }

func sameLimit(a, b DiskLimit) bool { return a.Read == b.Read && a.Write == b.Write }

func samePool(a, b Pool) bool {
	return a.Socket == b.Socket && a.Node == b.Node && a.CPUs.Equal(b.CPUs)
}

func sameQuotas(a, b QuotaLoop) bool {
	return a.Plus == b.Plus && a.Cap == b.Cap && maps.Equal(a.Factors, b.Factors)
}
