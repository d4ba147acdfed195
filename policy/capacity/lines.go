// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import "github.com/koord-rt/koord-rt/api/protocol"

// Lines are Koordinator's four lines of a node's resources (its resource model): what lies between them is what can be lent.
type Lines struct {
	// Limit is what production pods have asked for.
	Limit Amounts
	// Usage is what they use; not OK without a report that counts.
	Usage   Amounts
	UsageOK bool
	// ShortTerm is what is kept for them for the next minutes: everything that batch pods may not have. From here to Limit
	// is lent to batch.
	ShortTerm Amounts
	// LongTerm is what they are expected to need at their peak. From here to Limit is lent to mid.
	LongTerm Amounts
}

// LinesOf puts the lines together; batch is what batch pods may have of the node. Without a prediction the long-term line is
// the limit: nothing is known to be free for long. Without a report that counts (nil) usage is not known; the others are: nothing is lent then.
//
// Example: 100 CPUs, production asks for 60, uses 20 and is expected to use 35 at most, batch may have 38: limit 60, usage 20,
// short-term 62, long-term 35.
func LinesOf(n *Node, pods []Pod, report *Report, batch Amounts) Lines {
	ok := report != nil
	if !ok {
		report = &Report{}
	}
	prod := HighOf(pods, report, protocol.PriorityMid)
	out := Lines{Limit: prod.Requested, UsageOK: ok, ShortTerm: n.Capacity.Minus(batch), LongTerm: prod.Requested}
	if ok {
		out.Usage = prod.Used
	}
	if report.PeakOK {
		out.LongTerm = report.ProdPeak
	}
	return out
}
