// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

const (
	team  = "quota.koordinator.sh"
	koord = "koordinator.sh"
)

// amounts reads "cpu=10 memory=20Gi".
func amounts(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for part := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(part, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return out
}

// quota is a child of the root in namespace ns.
func quota(name, least, most string, change ...func(*Quota)) Quota {
	q := Quota{Group: Canonical, Namespace: "ns", Name: name, Parent: protocol.QuotaRoot, Min: amounts(least), Max: amounts(most)}
	for _, c := range change {
		c(&q)
	}
	return q
}

func below(parent string) func(*Quota) { return func(q *Quota) { q.Parent = parent } }
func isParent(q *Quota)                { q.IsParent = true }
func of(group, ns string) func(*Quota) {
	return func(q *Quota) { q.Group, q.Namespace = group, ns }
}
func tree(id string) func(*Quota) { return func(q *Quota) { q.Tree = id } }
func forced(q *Quota)             { q.Force = true }
func top(q *Quota)                { q.TreeRoot = true }
func takes(ns ...string) func(*Quota) {
	return func(q *Quota) { q.Namespaces = ns }
}

// says checks that refusals are those that are wanted, by a part of each, and no others.
func says(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d refusals %q, want %d", len(got), got, len(want))
		return
	}
	for i, part := range want {
		if !strings.Contains(got[i], part) {
			t.Errorf("%q does not say %q", got[i], part)
		}
	}
}

func TestCheckSelf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q    Quota
		want []string
	}{
		"nothing":                       {quota("a", "", ""), nil},
		"the documents' test quota":     {quota("a", "cpu=2 memory=4Gi", "cpu=8 memory=16Gi"), nil},
		"min is max":                    {quota("a", "cpu=8", "cpu=8"), nil},
		"min above max":                 {quota("a", "cpu=10", "cpu=8"), []string{"spec.min: cpu is 10, above spec.max with 8"}},
		"of any resource":               {quota("a", "example.com/x=2", "example.com/x=1"), []string{"example.com/x is 2"}},
		"min without max":               {quota("a", "cpu=2 memory=1Gi", "cpu=8"), []string{"spec.min: memory has no spec.max"}},
		"max without min":               {quota("a", "", "cpu=8"), nil},
		"hard instead of max":           {quota("a", "cpu=2", "", func(q *Quota) { q.Hard = amounts("cpu=4") }), nil},
		"hard below max, as documented": {quota("a", "cpu=50", "cpu=200", func(q *Quota) { q.Hard = amounts("cpu=100") }), nil},
		"hard below min":                {quota("a", "cpu=50", "cpu=200", func(q *Quota) { q.Hard = amounts("cpu=40") }), []string{"above spec.hard with 40"}},
		"negative":                      {quota("a", "", "cpu=-1"), []string{"spec.max: cpu is -1"}},
		"negative weight":               {quota("a", "", "cpu=1", func(q *Quota) { q.Weight = amounts("cpu=-1") }), []string{"shared-weight: cpu is -1"}},
		"below what is used": {
			quota("a", "", "cpu=10", func(q *Quota) { q.Used, q.Strict = amounts("cpu=12 memory=1Gi"), []string{"cpu", "memory", "x"} }),
			[]string{"cpu is 10, below the 12 in use", "memory is used and not limited"},
		},
		"below what is used, not strict": {quota("a", "", "cpu=10", func(q *Quota) { q.Used = amounts("cpu=12") }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, CheckSelf(&c.q), c.want...)
		})
	}
}

// company is a parent with min 100 and max 200 of which a child has 60, another is free to.
func company() []Quota {
	return []Quota{
		quota("company", "cpu=100", "cpu=200", isParent), quota("web", "cpu=60", "cpu=200", below("company")),
		quota("alone", "cpu=5", "cpu=10", takes("x", "y")), quota("forest", "cpu=1", "cpu=9", isParent, tree("t1")),
	}
}

func TestCheckNew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q     Quota
		loose bool
		more  []Quota
		want  []string
	}{
		"of the root":                  {q: quota("new", "cpu=1000", "cpu=1000")},
		"what is left of the parent":   {q: quota("new", "cpu=40", "cpu=200", below("company"))},
		"more than is left":            {q: quota("new", "cpu=50", "cpu=200", below("company")), want: []string{"company (new, web) are guaranteed 110 cpu together, it has 100"}},
		"more than is left, forced":    {q: quota("new", "cpu=50", "cpu=200", below("company"), forced)},
		"more than is left, of a tree": {q: quota("new", "cpu=50", "cpu=200", below("company"), top)},
		"no such parent":               {q: quota("new", "", "cpu=1", below("nobody")), want: []string{"there is no quota nobody: create it first"}},
		"a parent that is none":        {q: quota("new", "", "cpu=1", below("alone")), want: []string{"alone takes no children: set its label quota.scheduling.koordinator.sh/is-parent"}},
		"its own parent":               {q: quota("new", "", "cpu=1", below("new"), isParent), want: []string{"its own parent"}},
		"max of more than the parent":  {q: quota("new", "", "cpu=1 memory=1Gi", below("company")), want: []string{"new limits memory, and its parent company does not"}},
		"max of less than the parent":  {q: quota("new", "", "", below("company")), want: []string{"company limits cpu, and its child new does not"}},
		"the same, loose":              {q: quota("new", "", "", below("company")), loose: true},
		"max of more, loose":           {q: quota("new", "", "cpu=1 memory=1Gi", below("company")), loose: true, want: []string{"limits memory"}},
		"min of more than the parent":  {q: quota("new", "cpu=1 memory=1Gi", "cpu=1", below("company")), want: []string{"new guarantees memory"}},
		"another tree than its parent": {q: quota("new", "", "cpu=1", below("forest"), tree("t2")), want: []string{`new is of tree "t2", its parent forest of tree "t1"`}},
		"the parent's tree":            {q: quota("new", "", "cpu=1", below("forest"), tree("t1"))},
		"a namespace that is taken":    {q: quota("new", "", "cpu=1", takes("z", "y")), want: []string{"namespace y belongs to quota alone"}},
		"a name that is taken":         {q: quota("web", "", "cpu=1", of(Canonical, "other")), want: []string{"namespace ns has a quota web already"}},
		"the team's":                   {q: quota("team-a", "cpu=1", "cpu=2", of(team, "team-a"))},
		"a second one of a team": {
			q: quota("more", "cpu=1", "cpu=2", of(koord, "team-a")), more: []Quota{quota("team-a", "cpu=1", "cpu=2", of(team, "team-a"))},
			want: []string{"team-a has the quota team-a of quota.koordinator.sh already"},
		},
		"the canonical one of the team's": {
			q: quota("team-a", "cpu=1", "cpu=2", of(Canonical, "team-a")), more: []Quota{quota("team-a", "cpu=1", "cpu=2", of(team, "team-a"))},
		},
		"of the scheduler": {q: quota(protocol.QuotaRoot, "", "cpu=1", takes("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, NewTree(append(company(), c.more...), c.loose).CheckNew(&c.q), c.want...)
		})
	}
}

func TestCheckChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name   string // of company, which changes
		change func(*Quota)
		pods   []string
		more   []Quota
		want   []string
		wrong  int // how many amounts are negative before
		told   int
	}{
		"nothing":                      {name: "web", change: func(*Quota) {}},
		"more of the parent":           {name: "web", change: func(q *Quota) { q.Min = amounts("cpu=100") }},
		"more than the parent":         {name: "web", change: func(q *Quota) { q.Min = amounts("cpu=101") }, want: []string{"(web) are guaranteed 101 cpu"}},
		"less than its children":       {name: "company", change: func(q *Quota) { q.Min = amounts("cpu=50") }, want: []string{"(web) are guaranteed 60 cpu together, it has 50"}},
		"less than its children, said": {name: "company", change: func(q *Quota) { q.Min, q.Force = amounts("cpu=50"), true }},
		"another resource":             {name: "company", change: func(q *Quota) { q.Max = amounts("cpu=200 memory=1Gi") }, want: []string{"company limits memory, and its child web does not"}},
		"no parent, with children":     {name: "company", change: func(q *Quota) { q.IsParent = false }, want: []string{"is-parent: the quota has children (web)"}},
		"a parent, without pods":       {name: "alone", change: isParent},
		"a parent, with pods":          {name: "alone", change: isParent, pods: []string{"x/a", "x/b", "y/c", "y/d"}, want: []string{"has pods (x/a, x/b, y/c and 1 more)"}},
		"another tree":                 {name: "alone", change: tree("t9"), want: []string{`cannot change from "" to "t9"`}},
		"another parent":               {name: "web", change: below(protocol.QuotaRoot)},
		"another parent that is none":  {name: "web", change: below("alone"), want: []string{"alone takes no children"}},
		"below its own child": {
			name: "company", change: below("dept"), more: []Quota{quota("dept", "", "cpu=1", below("company"), isParent)}, want: []string{"dept lies below company"},
		},
		"wrong before, and something else": {
			name: "web", change: func(q *Quota) { q.Weight = amounts("cpu=3") }, more: []Quota{quota("late", "cpu=70", "cpu=200", below("company"))}, told: 1,
		},
		"wrong before, and worse": {
			name: "web", change: func(q *Quota) { q.Min = amounts("cpu=61") }, more: []Quota{quota("late", "cpu=70", "cpu=200", below("company"))},
			want: []string{"131 cpu"},
		},
		// More is wrong than is told, and no sentence that was not said before is new.
		"much wrong before, and a part mended": {
			name: "alone", change: func(q *Quota) { q.Max = maps.Clone(q.Max); delete(q.Max, "a00") }, wrong: 3 * answer.Most, told: 3*answer.Most - 1,
		},
		"wrong before, and mended": {
			name: "web", change: func(q *Quota) { q.Min = amounts("cpu=30") }, more: []Quota{quota("late", "cpu=70", "cpu=200", below("company"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append(company(), c.more...)
			was := all[slices.IndexFunc(all, func(q Quota) bool { return q.Name == c.name })]
			for i := range c.wrong {
				was.Max = maps.Clone(was.Max)
				was.Max[corev1.ResourceName(fmt.Sprintf("a%02d", i))] = resource.MustParse("-1")
			}
			now := was
			c.change(&now)
			refused, told := NewTree(all, false).CheckChange(&now, &was, c.pods)
			says(t, refused, c.want...)
			if len(told) != c.told {
				t.Errorf("told %q", told)
			}
		})
	}
	for _, name := range []string{protocol.QuotaRoot, protocol.QuotaSystem} {
		q := quota(name, "", "")
		refused, _ := NewTree(nil, false).CheckChange(&q, &q, nil)
		says(t, refused, "scheduler's own")
	}
}

func TestCheckDelete(t *testing.T) {
	t.Parallel()
	all := append(company(), quota("mine", "", "", of(team, "team")), quota("mine", "", "", of(Canonical, "team")), quota("gone", "", "", of(team, "gone")),
		quota("mirror", "", "", of(Canonical, "team"), func(q *Quota) { q.Seed, q.Mirror = team, true }))
	for name, c := range map[string]struct {
		q    Quota
		pods []string
		want []string
	}{
		"a leaf":                        {q: quota("web", "", "", below("company"))},
		"with children":                 {q: quota("company", "", ""), want: []string{"company has children (web): delete them first"}},
		"with pods":                     {q: quota("web", "", ""), pods: []string{"ns/a"}, want: []string{"web has pods (ns/a)"}},
		"with both":                     {q: quota("company", "", ""), pods: []string{"ns/a"}, want: []string{"children", "pods"}},
		"the scheduler's":               {q: quota(protocol.QuotaDefault, "", ""), want: []string{"scheduler's own"}},
		"a team's, the canonical there": {q: quota("mine", "", "", of(team, "team")), pods: []string{"team/a"}},
		"a team's with its mirror":      {q: quota("mirror", "", "", of(team, "team")), pods: []string{"team/a"}, want: []string{"pods"}},
		"the canonical of a team's":     {q: quota("mine", "", "", of(Canonical, "team")), pods: []string{"team/a"}, want: []string{"pods"}},
		"a team's without canonical":    {q: quota("gone", "", "", of(team, "gone")), pods: []string{"team/a"}, want: []string{"pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, NewTree(all, false).CheckDelete(&c.q, c.pods), c.want...)
		})
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	meta := &metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{
		protocol.LabelQuotaIsParent: "true", protocol.LabelQuotaTreeID: "t", protocol.LabelQuotaForceUpdate: "false",
	}, Annotations: map[string]string{
		protocol.AnnotationQuotaSharedWeight: `{"cpu":40,"memory":"40Gi"}`, protocol.AnnotationQuotaNamespaces: `["x"]`, protocol.AnnotationQuotaStrictKeys: `["cpu"]`,
	}}
	q, problems := Read(Canonical, meta, &sigsv1alpha1.ElasticQuotaSpec{Min: amounts("cpu=1")}, amounts("cpu=2"))
	if len(problems) > 0 || q.Parent != protocol.QuotaRoot || !q.IsParent || q.Force || q.TreeRoot || q.Tree != "t" || q.Weight.Cpu().Value() != 40 ||
		q.Namespaces[0] != "x" || q.Strict[0] != "cpu" || q.Used.Cpu().Value() != 2 {
		t.Errorf("%+v, %q", q, problems)
	}
	meta.Labels = map[string]string{protocol.LabelQuotaIsParent: "yes", protocol.LabelQuotaAllowLent: ""}
	meta.Annotations = map[string]string{protocol.AnnotationQuotaSharedWeight: "40", protocol.AnnotationQuotaNamespaces: `x`}
	_, problems = Read(Canonical, meta, &sigsv1alpha1.ElasticQuotaSpec{}, nil)
	says(t, problems, `is-parent: "yes"`, `allow-lent-resource: ""`, `shared-weight: cannot be read`, `namespaces: cannot be read: want JSON as ["team-a"]`)
}

// FuzzRead: whatever labels and annotations say, the rules end and need no more than what was read.
func FuzzRead(f *testing.F) {
	f.Add("true", "company", `{"cpu":"1"}`, `["x"]`, `["cpu"]`)
	f.Add("", "web", `{"cpu":"9999999999999999999999999E"}`, `[null]`, `[""]`)
	f.Add("true", "web", `{"cpu":"1e-99999999"}`, `[]`, `[]`)
	f.Add("true", "web", `{"cpu":"1"}`, `[]`, `[A`)
	f.Add("false", "fuzz", `{"":-1}`, `null`, `{}`)
	f.Fuzz(func(t *testing.T, is, parent, weight, namespaces, strict string) {
		meta := &metav1.ObjectMeta{Namespace: "ns", Name: "fuzz", Labels: map[string]string{
			protocol.LabelQuotaIsParent: is, protocol.LabelQuotaParent: parent,
		}, Annotations: map[string]string{
			protocol.AnnotationQuotaSharedWeight: weight, protocol.AnnotationQuotaNamespaces: namespaces, protocol.AnnotationQuotaStrictKeys: strict,
		}}
		q, problems := Read(Canonical, meta, &sigsv1alpha1.ElasticQuotaSpec{Max: amounts("cpu=1")}, amounts("cpu=2"))
		if (is == "true") != q.IsParent {
			t.Errorf("is-parent %q: %t", is, q.IsParent)
		}
		tree := NewTree(append(company(), q), false)
		_ = CheckSelf(&q)
		_ = tree.CheckNew(&q)
		if refused, _ := tree.CheckChange(&q, &q, nil); len(refused) > 0 {
			t.Errorf("no change is refused: %q (%q)", refused, problems)
		}
	})
}
