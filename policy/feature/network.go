// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature

import (
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// network is what the node agent has told of its loop: no other program looks at links.
func network(r *report) {
	if !r.need(plan.NetShape) {
		return
	}
	d := &r.v.Dynamic
	switch {
	case !netqos.Asked(r.v.Strategy):
		r.notes = append(r.notes, "no class asks for it (networkQOS.enable)")
	case !d.Known:
		r.missing = append(r.missing, "done by the node agent, which tells nothing here")
	case d.Network.Missing != "":
		r.missing = append(r.missing, d.Network.Missing)
	case d.Network.Limited != "":
		r.limited = append(r.limited, d.Network.Limited)
	default:
		r.notes = append(r.notes, "done by the node agent")
	}
}
