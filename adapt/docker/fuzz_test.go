// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
)

// FuzzCreate: whatever comes in, nothing panics, the input stays as it is, and what comes out is JSON that says what was
// planned and reads back with the same labels and variables.
func FuzzCreate(f *testing.F) {
	f.Add([]byte(sandboxBody))
	f.Add([]byte(containerBody))
	f.Add([]byte(`{"HostConfig":{"Memory":1e2,"memory":2},"Env":["A=B",""]}`))
	f.Add([]byte(`{"HostConfig":{"NanoCpus":710000000}}`))
	f.Add([]byte(`{"HostConfig":{"NanoCpus":710009999}}`))
	f.Add([]byte(` {"hostconfig":{ } , "Labels" : {"":"\ud800"} } `))
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		c, err := ParseCreate(in)
		if err != nil {
			return
		}
		c.Pod()
		if edited, err := c.Edit(Change{Labels: map[string]string{"k": "v"}, EnvRemoved: []string{"A"}, CgroupParent: "/p"}); err == nil {
			if e, err := ParseCreate(edited); err != nil || e.Labels["k"] != "v" {
				t.Fatalf("%q became %q: %v", in, edited, err)
			}
		}
		p := plan.Plan{
			setting(plan.CPUQuota, "", plan.Int(71000)), setting(plan.Env, "K", plan.Text("V")), setting(plan.IOReadBPS, "8:0", plan.Int(9)),
			setting(plan.MemoryLimit, "", plan.Int(64<<20)), setting(plan.Mount, "/m", plan.Text("/s")), setting(plan.CPUSetCPUs, "", plan.Text("0")),
		}
		out, rest, err := c.Apply(view(), p, c.Container(), mark.By{Program: "fuzz", Version: "1"})
		if !bytes.Equal(in, before) {
			t.Fatal("the input was written to")
		}
		if err != nil {
			return
		}
		again, err := ParseCreate(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		// NanoCpus may stand for this quota already, then nothing is written.
		if rest.Get(plan.CPUQuota) == nil && again.host.base().Quota.V != 71000 {
			t.Fatalf("%q became %q", in, out)
		}
		for k, v := range c.Labels {
			if k != labelApplied && again.Labels[k] != v {
				t.Fatalf("label %q is %q, was %q", k, again.Labels[k], v)
			}
		}
		for i, kv := range c.env {
			if !strings.HasPrefix(kv, "K=") && kv != "K" && again.env[i] != kv {
				t.Fatalf("variable %d changed", i)
			}
		}
	})
}

// FuzzUpdate is the same for updates and for the other bodies that are read.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"CpuShares":5,"x":[{}]}`), "POST", "/v1.41/containers/a/update")
	f.Add([]byte(`{"Id":"a","State":{"Running":true},"Config":{"Labels":{}},"HostConfig":{}}`), "DELETE", "/containers/a")
	f.Fuzz(func(t *testing.T, in []byte, method, path string) {
		if r := Match(method, path); r.Verb > VerbCreate && (r.ID == "" || strings.Contains(r.ID, "/")) {
			t.Fatalf("%s %q: %+v", method, path, r)
		}
		Streams(method, path)
		if i, err := ParseInspect(in); err == nil {
			i.Pod()
			i.Container()
		}
		if id, err := ParseCreated(in); err == nil && id == "" {
			t.Fatal("a creation without an id")
		}
		if ids, err := ParseList(in); err == nil && slices.Contains(ids, "") {
			t.Fatal("a list with an empty id")
		}
		if v, err := ParseVersion(in); err == nil && v == "" {
			t.Fatal("a version without a text")
		}
		u, err := ParseUpdate(in)
		if err != nil {
			return
		}
		out, rest, err := u.Apply(view(), plan.Plan{setting(plan.CPUShares, "", plan.Int(77)), setting(plan.MemoryLimit, "", plan.Int(64<<20))}, &Inspect{})
		if err == nil && (!json.Valid(out) || rest.Get(plan.CPUShares) != nil) {
			t.Fatalf("%q became %q, left %v", in, out, rest)
		}
	})
}
