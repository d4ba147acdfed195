// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
)

func ours(k plan.Knob, v int) plan.Setting {
	return plan.Setting{Target: containerTarget, Knob: k, Value: plan.Int(v), Owner: protocol.FeatureBatch}
}

func theirs(k plan.Knob, v int) plan.Setting {
	s := ours(k, v)
	s.Hook = "k"
	return s
}

func observe(s plan.Setting) plan.Setting { s.Observe = true; return s }

func keyed(s plan.Setting, key string) plan.Setting { s.Key = key; return s }

func TestMerge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ours, theirs       plan.Plan
		yields, replaces   plan.Plan
		conflicts, replace int
	}{
		"apart": {plan.Plan{ours(plan.CPUShares, 1)}, plan.Plan{theirs(plan.MemoryLow, 2)},
			plan.Plan{ours(plan.CPUShares, 1), theirs(plan.MemoryLow, 2)}, plan.Plan{ours(plan.CPUShares, 1), theirs(plan.MemoryLow, 2)}, 0, 0},
		"one knob": {plan.Plan{ours(plan.CPUShares, 1), ours(plan.MemoryLow, 3)}, plan.Plan{theirs(plan.CPUShares, 2)},
			plan.Plan{ours(plan.CPUShares, 1), ours(plan.MemoryLow, 3)}, plan.Plan{ours(plan.MemoryLow, 3), theirs(plan.CPUShares, 2)}, 1, 1},
		"same value": {plan.Plan{ours(plan.CPUShares, 1)}, plan.Plan{theirs(plan.CPUShares, 1)},
			plan.Plan{ours(plan.CPUShares, 1)}, plan.Plan{ours(plan.CPUShares, 1)}, 0, 0},
		"burst above their quota": {plan.Plan{ours(plan.CPUQuota, 9000), ours(plan.CPUBurst, 9000)}, plan.Plan{theirs(plan.CPUQuota, 1000)},
			plan.Plan{ours(plan.CPUQuota, 9000), ours(plan.CPUBurst, 9000)}, plan.Plan{theirs(plan.CPUQuota, 1000)}, 1, 2},
		"their period is ours": {plan.Plan{ours(plan.CPUQuota, 5000), ours(plan.CPUPeriod, 7)}, plan.Plan{theirs(plan.CPUQuota, 9000), theirs(plan.CPUPeriod, 7)},
			plan.Plan{ours(plan.CPUQuota, 5000), ours(plan.CPUPeriod, 7)}, plan.Plan{theirs(plan.CPUQuota, 9000), theirs(plan.CPUPeriod, 7)}, 1, 1},
		"keys": {plan.Plan{keyed(ours(plan.IOReadBPS, 1), "8:0")}, plan.Plan{keyed(theirs(plan.IOReadBPS, 2), "8:16")},
			plan.Plan{keyed(ours(plan.IOReadBPS, 1), "8:0"), keyed(theirs(plan.IOReadBPS, 2), "8:16")},
			plan.Plan{keyed(ours(plan.IOReadBPS, 1), "8:0"), keyed(theirs(plan.IOReadBPS, 2), "8:16")}, 0, 0},
		"ours is only observed": {plan.Plan{observe(ours(plan.CPUShares, 1))}, plan.Plan{theirs(plan.CPUShares, 2)},
			plan.Plan{theirs(plan.CPUShares, 2)}, plan.Plan{theirs(plan.CPUShares, 2)}, 1, 1},
		"nothing of theirs": {plan.Plan{ours(plan.CPUShares, 1)}, nil, plan.Plan{ours(plan.CPUShares, 1)}, plan.Plan{ours(plan.CPUShares, 1)}, 0, 0},
		"nothing of ours":   {nil, plan.Plan{theirs(plan.CPUShares, 2)}, plan.Plan{theirs(plan.CPUShares, 2)}, plan.Plan{theirs(plan.CPUShares, 2)}, 0, 0},
	} {
		before, after := slices.Clone(c.ours), slices.Clone(c.theirs)
		for _, m := range []struct {
			mode config.HookMerge
			want plan.Plan
			n    int
		}{{config.HookYields, c.yields, c.conflicts}, {config.HookReplaces, c.replaces, c.replace}} {
			got, conflicts := hooks.Merge(c.ours, c.theirs, m.mode)
			if diff := cmp.Diff(m.want, got, cmp.AllowUnexported(plan.Value{})); diff != "" || len(conflicts) != m.n {
				t.Errorf("%s, %s: %v\n%s", name, m.mode, conflicts, diff)
			}
		}
		if !reflect.DeepEqual(before, c.ours) || !reflect.DeepEqual(after, c.theirs) {
			t.Errorf("%s: Merge changed its input", name)
		}
	}
}

func TestConflictSaysWho(t *testing.T) {
	t.Parallel()
	_, conflicts := hooks.Merge(plan.Plan{ours(plan.CPUShares, 1)}, plan.Plan{theirs(plan.CPUShares, 2)}, config.HookYields)
	if got := conflicts[0].String(); got != "cpu.shares of container default/web/app: cpu.shares 1 of batch holds, cpu.shares 2 of hook:k does not" {
		t.Error(got)
	}
	env := plan.Setting{Target: containerTarget, Knob: plan.Env, Key: "TOKEN", Value: plan.Text("old secret"), Owner: protocol.FeatureDevices}
	other := env
	other.Hook, other.Value = "k", plan.Text("new secret")
	_, conflicts = hooks.Merge(plan.Plan{env}, plan.Plan{other}, config.HookReplaces)
	if got := conflicts[0].String(); strings.Contains(got, "secret") || !strings.Contains(got, "env[TOKEN]") || !strings.Contains(got, "hook:k's holds") {
		t.Error(got)
	}
}

// FuzzMerge: whatever both sides want, nobody's knob is set twice, quota and burst come from one side, and every value
// that is lost is either a conflict or equal to the one that holds.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, []byte{1, 5}, true)
	f.Add([]byte{2, 3, 4, 2}, []byte{3, 3, 9}, false)
	f.Fuzz(func(t *testing.T, a, b []byte, replaces bool) {
		mode := config.HookYields
		if replaces {
			mode = config.HookReplaces
		}
		p, q := randomPlan(a, ours), randomPlan(b, theirs)
		got, conflicts := hooks.Merge(p, q, mode)
		if _, err := plan.Merge(got); err != nil || len(got) > len(p)+len(q) {
			t.Fatalf("%v\n%s", err, got)
		}
		from := map[plan.Knob]map[string]bool{}
		for i := range got {
			k := got[i].Knob
			if k == plan.CPUPeriod || k == plan.CPUBurst {
				k = plan.CPUQuota
			}
			if from[k] == nil {
				from[k] = map[string]bool{}
			}
			from[k][got[i].Hook] = true
			if len(from[k]) > 1 {
				t.Fatalf("two sides for %s:\n%s", k, got)
			}
		}
		lost := len(p) + len(q) - len(got) - len(conflicts)
		for _, s := range slices.Concat(p, q) {
			same := got.Find(s.Target, s.Knob, s.Key)
			if same != nil && same.Hook != s.Hook && same.Value == s.Value {
				lost--
			}
		}
		if lost != 0 {
			t.Fatalf("%d values lost without a word: %v + %v = %v, %v", lost, p, q, got, conflicts)
		}
	})
}

// randomPlan sets the knob of each byte's low half to its high half, each knob once.
func randomPlan(raw []byte, set func(plan.Knob, int) plan.Setting) plan.Plan {
	var out plan.Plan
	for _, b := range raw {
		s := set(plan.Knob(b%8)+plan.CPUShares, int(b>>5))
		if out.Find(s.Target, s.Knob, s.Key) == nil {
			out = append(out, s)
		}
	}
	return out
}
