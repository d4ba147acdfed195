// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import "github.com/koord-rt/koord-rt/model/unit"

// Least changes that are news, whatever the percentage: an idle node's usage doubles and halves all the time.
const (
	leastCPU      unit.MilliCPU = 200
	leastMemory   unit.Bytes    = 256 << 20
	leastCapacity unit.Percent  = 2
)

// News reports whether a reader would decide differently: some figure has changed by more than threshold percent of the
// larger of both values, and by more than 2 % of the node's capacity and 200m or 256 MiB; or other pods than before are held
// because they disturb others; or another number than before was evicted in the last hour.
//
// Example: threshold 10 %, capacity 32 CPUs: 8 → 8.6 CPUs is no news (7 %), 1 → 1.5 neither (less than 0.64), 8 → 9 is.
func News(old, fresh *Totals, capacity Figures, threshold unit.Percent) bool {
	if old.Known != fresh.Known || old.Held != fresh.Held || old.Evicted != fresh.Evicted {
		return true
	}
	leastFigures := Figures{max(leastCPU, leastCapacity.Milli(capacity.CPU)), max(leastMemory, leastCapacity.Of(capacity.Memory))}
	for _, pair := range [][2]Figures{
		{old.Node, fresh.Node}, {old.BE, fresh.BE}, {old.LS, fresh.LS}, {old.System, fresh.System}, {old.NodeRequest, fresh.NodeRequest},
		{old.BERequest, fresh.BERequest}, {old.LSRequest, fresh.LSRequest}, {old.Reclaimable, fresh.Reclaimable},
	} {
		a, b := pair[0], pair[1]
		if moved(a.CPU, b.CPU, leastFigures.CPU, threshold.Milli(max(a.CPU, b.CPU))) ||
			moved(a.Memory, b.Memory, leastFigures.Memory, threshold.Of(max(a.Memory, b.Memory))) {
			return true
		}
	}
	return false
}

// moved reports that a and b differ by more than both.
func moved[T ~int64](a, b, least, share T) bool { return max(a, b)-min(a, b) > max(least, share) }
