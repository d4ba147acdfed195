// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Booked is the memory that best-effort pods use of what they have requested.
type Booked struct{ Used, Requested unit.Bytes }

// BookedOf adds up the best-effort pods that are in the report. One that has just come uses nothing yet that anybody knows of, so
// what it requests does not count either.
func BookedOf(pods []Pod, report *Report) Booked {
	used := make(map[string]unit.Bytes, len(report.Pods))
	for i := range report.Pods {
		used[report.Pods[i].Name] = report.Pods[i].Used.Memory
	}
	var out Booked
	for i := range pods {
		p := &pods[i]
		if u, measured := used[p.Name]; measured && p.QoS == protocol.QoSBE {
			out.Used, out.Requested = unit.Add(out.Used, u), unit.Add(out.Requested, p.Request.Memory)
		}
	}
	return out
}

// Full reports whether no more memory should be lent: the pods use as much of what they have requested as the mark says, and more of
// it would only bring more of them. Pods that have requested nothing say nothing.
//
// Example, mark 80 %: 24 of 30 GiB are full, 20 of 30 are not.
func (b Booked) Full(mark unit.Percent) bool {
	return b.Requested > 0 && b.Used >= mark.Of(b.Requested)
}
