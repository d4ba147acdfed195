// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Every byte that the change does not name stays.
func TestEdit(t *testing.T) {
	t.Parallel()
	const in = `{ "Image":"x","Env":["A=1","B=2"], "Labels":{"a":"1","annotation.b":"2"},"HostConfig":{"Memory":5, "Unknown":{"q":[1]}} }`
	for name, c := range map[string]struct {
		change Change
		want   string
	}{
		"nothing": {Change{}, in},
		"labels": {
			Change{Labels: map[string]string{"a": "9"}, Annotations: map[string]string{"b": "8", "c": "7"}},
			`{ "Image":"x","Env":["A=1","B=2"], "Labels":{"a":"9","annotation.b":"8","annotation.c":"7"},"HostConfig":{"Memory":5, "Unknown":{"q":[1]}} }`,
		},
		"rest": {
			Change{EnvRemoved: []string{"A"}, CgroupParent: "/p", Swap: unit.Some(7)},
			`{ "Image":"x","Env":["B=2"], "Labels":{"a":"1","annotation.b":"2"},"HostConfig":{"Memory":5, "Unknown":{"q":[1]},"CgroupParent":"/p","MemorySwap":7} }`,
		},
	} {
		create, err := ParseCreate([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := create.Edit(c.change); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct {
		body   string
		change Change
		want   error
	}{
		"two labels": {`{"Labels":{},"labels":{}}`, Change{Labels: map[string]string{"a": "1"}}, ErrAmbiguous},
		"odd name":   {`{}`, Change{Labels: map[string]string{"a\"": "1"}}, ErrBody},
	} {
		create, err := ParseCreate([]byte(c.body))
		if err == nil {
			_, err = create.Edit(c.change)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Not parallel: it counts the process's allocations. Read anew for each setting, 300 variables would be 90000 readings.
func TestVariablesAreReadOnce(t *testing.T) {
	const n = 300
	var env []string
	var p plan.Plan
	for i := range n {
		env = append(env, "A"+strconv.Itoa(i)+"=1")
		p = append(p, setting(plan.Env, "B"+strconv.Itoa(i), plan.Text("2")))
	}
	p[0].Key, p[1].Key = "A7", "A7"
	text, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	c := create(t, `{"Env":`+string(text)+`}`)
	w := c.Container()
	var body []byte
	allocs := testing.AllocsPerRun(3, func() {
		if body, _, err = c.Apply(view(), p, w, mark.By{Program: "x", Version: "1"}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 40*n {
		t.Errorf("%.0f allocations for %d settings", allocs, n)
	}
	if got := create(t, string(body)).env; len(got) != 2*n-2 || got[7] != "A7=2" || got[n] != "B2=2" {
		t.Errorf("%q", got)
	}
}

func TestCgroup(t *testing.T) {
	t.Parallel()
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice"
	for parent, want := range map[string]string{
		"/kubepods/burstable/podU":      "/kubepods/burstable/podU/abc",
		slice:                           slice + "/docker-abc.scope",
		"kubepods-burstable-podU.slice": slice + "/docker-abc.scope",
		"":                              "",
	} {
		if got := Cgroup(parent, "abc"); got != want {
			t.Errorf("%q: %q, want %q", parent, got, want)
		}
	}
}

func TestRuntime(t *testing.T) {
	t.Parallel()
	v, err := ParseVersion([]byte(`{"Version":"20.10.24+dfsg1","ApiVersion":"1.41"}`))
	if r := Runtime(v); err != nil || r.Name != "docker" || r.Version != "20.10.24+dfsg1" || !r.Fields.OOMScoreAdj || r.Fields.Unified || len(r.Problems) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, in := range []string{"", "[]", `{"Version":5}`, "{}"} {
		if v, err := ParseVersion([]byte(in)); !errors.Is(err, ErrBody) {
			t.Errorf("%q gives %q, %v", in, v, err)
		}
	}
}
