// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// High is what the pods above a class have, on the whole node or in one zone.
type High struct {
	// Requested is the sum of what they ask for.
	Requested Amounts
	// Used is the sum of what they use: of a pod without a report its request, of an LSE pod its CPU request, which nobody
	// may borrow from.
	Used Amounts
	// Larger is the sum of the larger of each pod's request and use.
	Larger Amounts
}

func (h High) plus(o High) High {
	return High{Requested: h.Requested.Plus(o.Requested), Used: h.Used.Plus(o.Used), Larger: h.Larger.Plus(o.Larger)}
}

// split is one of n equal parts.
func (h High) split(n int) High {
	return High{Requested: h.Requested.split(n), Used: h.Used.split(n), Larger: h.Larger.split(n)}
}

// HighOf adds up the pods above a class. A report about a pod that is not in the list (it has finished, or it is not yet known
// here) counts as used: what it has held is not yet free for sure.
//
// Example, above batch: ls asks 20 and uses 11, an unlabelled pod asks 20 and uses 22, a pod that is gone used 2:
// requested 40, used 35, larger 44.
func HighOf(pods []Pod, report *Report, class protocol.PriorityClass) High {
	var out High
	each(pods, report, class, func(h High, _ []int) { out = out.plus(h) })
	return out
}

// zonesOf does the same for each zone. What a pod has is spread evenly over the zones that it was given, or over all.
func zonesOf(pods []Pod, report *Report, class protocol.PriorityClass, zones []Zone) []High {
	out := make([]High, len(zones))
	each(pods, report, class, func(h High, given []int) {
		in := func(z Zone) bool { return slices.Contains(given, z.ID) }
		n := 0
		for _, z := range zones {
			if in(z) {
				n++
			}
		}
		everywhere := n == 0
		if everywhere {
			n = len(zones)
		}
		for i, z := range zones {
			if everywhere || in(z) {
				out[i] = out[i].plus(h.split(n))
			}
		}
	})
	return out
}

// each calls add for each pod above a class with what it has and the memory nodes that it was given.
func each(pods []Pod, report *Report, class protocol.PriorityClass, add func(High, []int)) {
	used := make(map[string]Amounts, len(report.Pods))
	for _, u := range report.Pods {
		used[u.Name] = u.Used
	}
	listed := make(map[string]bool, len(pods))
	for i := range pods {
		p := &pods[i]
		listed[p.Name] = true
		if !Above(p.Class, class) {
			continue
		}
		u, measured := used[p.Name]
		add(p.high(u, measured), p.Zones)
	}
	for _, u := range report.Pods {
		if !listed[u.Name] && Above(u.Class, class) {
			add(High{Used: u.Used, Larger: u.Used}, nil)
		}
	}
}

func (p *Pod) high(used Amounts, measured bool) High {
	if !measured {
		used = p.Request
	}
	out := High{Requested: p.Request, Used: used, Larger: used.Max(p.Request)}
	if p.QoS == protocol.QoSLSE {
		out.Used.CPU = p.Request.CPU
	}
	return out
}

// systemOf is what is used outside of pods by whom nobody below a class may take it from, not counting what is reserved.
func systemOf(report *Report, class protocol.PriorityClass) Amounts {
	out := report.System
	for _, h := range report.Hosts {
		if Above(h.Class, class) {
			out = out.Plus(h.Used)
		}
	}
	return out
}
