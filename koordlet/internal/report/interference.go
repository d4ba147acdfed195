// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// Interfered is what interference detection found, by the pod's UID; nil when nobody is disturbed and nobody held down.
func Interfered(out *interference.Output) map[string]*slo.PodInterference {
	if len(out.Victims)+len(out.Caps) == 0 {
		return nil
	}
	found := make(map[string]*slo.PodInterference, len(out.Victims)+len(out.Caps))
	of := func(uid string) *slo.PodInterference {
		if found[uid] == nil {
			found[uid] = &slo.PodInterference{}
		}
		return found[uid]
	}
	for i := range out.Victims {
		v := &out.Victims[i]
		p := of(v.Pod)
		p.Disturbed = append(p.Disturbed, slo.Disturbance{Signal: v.Signal.String(), Value: short(v.Value), Usual: short(v.Mean), Reason: v.Reason})
	}
	for i := range out.Caps {
		c := &out.Caps[i]
		p := of(c.Pod)
		p.Held = append(p.Held, slo.Hold{Resource: c.Resource.String(), State: c.Phase.String(), Reason: c.Reason})
	}
	return found
}

// short is a figure to four digits; what JSON cannot write is 0.
func short(l interference.Level) float64 {
	v := float64(l)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // what has just been written can be read
	return v
}
