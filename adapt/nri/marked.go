// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
)

// PlanOf reads a mark back into the plan that it was made of, as far as it can be written to the kernel: what an earlier
// life has set and a later decision may have to take back. Entries that cannot be read are left out.
func PlanOf(m *protocol.Applied, t plan.Target) plan.Plan {
	if m == nil {
		return nil
	}
	var out plan.Plan
	for _, name := range slices.Sorted(maps.Keys(m.Set)) {
		knob, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		k, ok := plan.ParseKnob(knob)
		i := strings.LastIndexByte(m.Set[name], ' ')
		if !ok || i < 0 || specOnly.Has(k) {
			continue
		}
		owner, ok := protocol.ParseFeature(m.Set[name][i+1:])
		if !ok {
			continue
		}
		s := plan.Setting{Target: t, Knob: k, Key: key, Value: plan.Text(m.Set[name][:i]), Owner: owner, Reason: "of an earlier life"}
		if !k.Info().Text {
			n, err := strconv.ParseInt(m.Set[name][:i], 10, 64)
			if err != nil {
				continue
			}
			s.Value = plan.Int(n)
		}
		out = append(out, s)
	}
	return out
}
