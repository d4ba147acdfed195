// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
)

// book is a ledger in memory.
type book struct{ records []journal.Record }

func (b *book) Append(r ...journal.Record) error {
	b.records = append(b.records, r...)
	return nil
}

// Through the one writer and its ledger: another process, which has the ledger alone, brings back what the link had, byte for byte;
// what somebody has changed meanwhile it leaves alone.
func TestRestoreFromTheLedger(t *testing.T) {
	t.Parallel()
	const handle = 0xf0070000 // as the kernel numbers queues, from 8001 on, but not one that it has come to
	for name, c := range map[string]struct{ meanwhile, taken bool }{
		"ours": {}, "changed meanwhile": {meanwhile: true}, "its handle is taken": {taken: true},
	} {
		meanwhile := c.meanwhile
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.must("set up", func(c *conn) error {
				return c.add(qdisc{tcmsg{index: n.index, parent: parentRoot, handle: handle}, "pfifo", fifo(77)}, unix.NLM_F_EXCL)
			})
			before := n.snapshot()
			tree := kerneltest.New(t, "6.12")
			writer := func(j journal.Journal) *apply.Applier {
				fs, err := cgroup.Open(tree.Roots, tree.Version, cgroup.Options{})
				if err != nil {
					t.Fatal(err)
				}
				a, err := apply.New(apply.Options{FS: fs, Roots: tree.Roots, Journal: j, Writer: tree, Links: Shaper{}})
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			ledger := &book{}
			var results []apply.Result
			var p plan.Plan
			for _, key := range []string{upEgress, upIngress} {
				p = append(p, plan.Setting{Knob: plan.NetShape, Key: key, Value: plan.Text(testShape), Reason: "test"})
			}
			agent := writer(ledger)
			n.do(func() { results = append(agent.Apply(t.Context(), p, 1), agent.Apply(t.Context(), p, 1)...) })
			for i, r := range results {
				if want := [...]apply.Outcome{apply.Written, apply.Unchanged}[i/2]; r.Outcome != want || r.Err != nil {
					t.Fatalf("%+v", r)
				}
			}
			n.sync(upEgress, pods()...)
			n.sync(upIngress, pods()...)
			if c.taken { // the kernel numbers the queues of classes as it likes
				n.must("take the handle", func(c *conn) error {
					place := tcmsg{index: n.index, handle: handle, parent: major | minorSystem}
					return errors.Join(c.remove(qdisc{tcmsg: tcmsg{index: n.index, parent: place.parent}}), c.add(qdisc{place, "pfifo", fifo(10)}, 0))
				})
			}
			if meanwhile {
				n.set(upEgress, strings.Replace(testShape, "be=20000000/500000000", "be=20000000/400000000", 1))
			}
			var steps []apply.RestoreStep
			n.do(func() { steps = writer(&book{}).Restore(t.Context(), ledger.records, false) })
			for _, s := range steps {
				want := apply.ActWrite
				if meanwhile && s.Key == upEgress {
					want = apply.ActKeep
				}
				if s.Action != want || s.Err != nil {
					t.Errorf("%+v", s)
				}
			}
			if after := n.snapshot(); after == before == meanwhile || len(steps) != 2 {
				t.Errorf("%d steps, before\n%safter\n%s", len(steps), before, after)
			}
			if text, err := n.get(upIngress); text != shape.None || err != nil {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
