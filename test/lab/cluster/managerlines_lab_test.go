// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// lines: of the real node koordctl top --cluster, and with it the metric koord_rt_manager_node_line, says what its objects do. Both are asked anew
// until no report has come between them.
func (m *managed) lines(t *testing.T) {
	args := []string{"top", "--cluster", "--metrics", m.leader(t).metrics}
	var text []byte
	eventually(t, 60*time.Second, func() error {
		n, out, err := topOfOne(t, args)
		if err != nil {
			return err
		}
		if n.Name != m.k.Node {
			return fmt.Errorf("want lines of %s: %s", m.k.Node, out)
		}
		s, err := m.look(t)
		if err != nil {
			return err
		}
		if err := errors.Join(s.agrees(t), s.drawn(t, &n)); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		text = out
		return nil
	})
	t.Logf("koordctl top --cluster: %s", text)
}

// drawn is an error unless the lines of the resource model are what docs/user/lending.md says: limit is what production pods ask for, usage what
// they use, the short-term reservation what the node does not lend to batch pods, the long-term one the peak that is expected, or the limit where
// none is.
func (s *seen) drawn(t *testing.T, n *topNode) error {
	t.Helper()
	var limit, usage capacity.Amounts
	for _, p := range s.pods {
		if p.Class == protocol.PriorityProd {
			limit = limit.Plus(p.Request)
		}
	}
	for _, u := range s.report.Pods {
		if u.Class == protocol.PriorityProd {
			usage = usage.Plus(u.Used)
		}
	}
	peak := limit
	if s.report.PeakOK {
		peak = s.report.ProdPeak
	}
	lends := func(name string) int64 { return quantityAt(t, s.object, "status", "allocatable", name) / 1000 }
	batch := capacity.Amounts{CPU: unit.MilliCPU(lends(protocol.ResourceBatchCPU)), Memory: unit.Bytes(lends(protocol.ResourceBatchMemory))}
	var errs []error
	same := func(line string, got topAmount, want capacity.Amounts, parts int64) {
		for _, v := range []struct {
			of         string
			got        *int64
			want, lent int64
		}{{"CPU", got.CPU, int64(want.CPU), int64(batch.CPU)}, {"memory", got.Memory, int64(want.Memory), int64(batch.Memory)}} {
			if v.got == nil || max(*v.got-v.want, v.want-*v.got)*1000 > v.lent*parts {
				errs = append(errs, fmt.Errorf("%s of the line %s: want %d", v.of, line, v.want))
			}
		}
	}
	same("limit", n.Limit, limit, 0)
	same("usage", n.Usage, usage, 0)
	same("long-term reservation", n.LongTermReservation, peak, 0)
	// What the node says that it lends may differ by as much as agrees lets pass.
	same("short-term reservation", n.ShortTermReservation, s.node.Capacity.Minus(batch), 2)
	same("batch", n.Batch, batch, 2)
	return errors.Join(errs...)
}
