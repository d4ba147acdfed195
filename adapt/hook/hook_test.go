// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
)

func resources() *hook.Resources {
	return &hook.Resources{
		Period: 100000, Quota: -1, Shares: 512, Memory: 1 << 33, OOMScoreAdj: -998, CPUs: "0-3", Mems: "0",
		Hugepages: []hook.Hugepage{{Size: "2MB", Limit: 1 << 63}, {}}, Unified: map[string]string{"memory.high": "7", "a": ""}, Swap: 9,
	}
}

func resourcesTree() map[string]any {
	return map[string]any{
		"cpu_period": int64(100000), "cpu_quota": int64(-1), "cpu_shares": int64(512), "memory_limit_in_bytes": int64(1 << 33),
		"oom_score_adj": int64(-998), "cpuset_cpus": "0-3", "cpuset_mems": "0",
		"hugepage_limits": []map[string]any{{"page_size": "2MB", "limit": uint64(1 << 63)}, {}},
		"unified":         map[string]string{"memory.high": "7", "a": ""}, "memory_swap_limit_in_bytes": int64(9),
	}
}

var podTree = map[string]any{"name": "web", "uid": "u-1", "namespace": "default", "attempt": uint32(3)}

// Every field stands where the published proto file has it: protobuf's own library reads what we write, byte for byte
// what it would have written itself.
func TestRequestsAgainstProtobuf(t *testing.T) {
	t.Parallel()
	types := hooktest.New(t)
	pod := hook.Pod{Name: "web", UID: "u-1", Namespace: "default", Attempt: 3}
	for name, c := range map[string]struct {
		message string
		encode  func() ([]byte, error)
		want    map[string]any
	}{
		"pod": {"PodSandboxHookRequest", (&hook.PodRequest{
			Pod: pod, RuntimeHandler: "runc", Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"k": "é"},
			CgroupParent: "/kubepods/pod1", Overhead: &hook.Resources{Shares: 2}, Resources: resources(),
		}).Encode, map[string]any{
			"pod_meta": podTree, "runtime_handler": "runc", "labels": map[string]string{"b": "2", "a": "1"},
			"annotations": map[string]string{"k": "é"}, "cgroup_parent": "/kubepods/pod1",
			"overhead": map[string]any{"cpu_shares": int64(2)}, "resources": resourcesTree(),
		}},
		"empty pod": {"PodSandboxHookRequest", (&hook.PodRequest{Resources: &hook.Resources{}}).Encode,
			map[string]any{"pod_meta": map[string]any{}, "resources": map[string]any{}}},
		"container": {"ContainerResourceHookRequest", (&hook.ContainerRequest{
			Pod: pod, Container: hook.Container{Name: "app", Attempt: 1, ID: "c1"}, Annotations: map[string]string{"x": "y"},
			Resources: resources(), PodResources: &hook.Resources{Memory: 5}, PodAnnotations: map[string]string{"p": "q"},
			PodLabels: map[string]string{"l": "m"}, PodCgroupParent: "kubepods.slice", Env: map[string]string{"A": "B"},
		}).Encode, map[string]any{
			"pod_meta": podTree, "container_meta": map[string]any{"name": "app", "attempt": uint32(1), "id": "c1"},
			"container_annotations": map[string]string{"x": "y"}, "container_resources": resourcesTree(),
			"pod_resources": map[string]any{"memory_limit_in_bytes": int64(5)}, "pod_annotations": map[string]string{"p": "q"},
			"pod_labels": map[string]string{"l": "m"}, "pod_cgroup_parent": "kubepods.slice", "container_envs": map[string]string{"A": "B"},
		}},
	} {
		got, err := c.encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := types.Message(c.message)
		hooktest.Set(want, c.want)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, raw) {
			t.Errorf("%s: have\n%x\nwant\n%x", name, got, raw)
		}
		read := types.Message(c.message)
		if err := proto.Unmarshal(got, read); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, hooktest.Tree(read)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The bytes of a small request, written down: a change of a field number shows here even if both sides moved.
func TestGoldenBytes(t *testing.T) {
	t.Parallel()
	got, err := (&hook.ContainerRequest{
		Pod: hook.Pod{Name: "p", UID: "u", Namespace: "n"}, Container: hook.Container{Name: "c", ID: "i"},
		Resources: &hook.Resources{Shares: 2, OOMScoreAdj: -1}, PodCgroupParent: "/k", Env: map[string]string{"E": ""},
	}).Encode()
	const want = "0a09" + "0a0170" + "120175" + "1a016e" + // pod_meta
		"1206" + "0a0163" + "1a0169" + // container_meta
		"220d" + "1802" + "28ffffffffffffffffff01" + // container_resources
		"42022f6b" + // pod_cgroup_parent
		"4a05" + "0a0145" + "1200" // container_envs
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("have %x, %v\nwant %s", got, err, want)
	}
}

func TestEncodeRefusesBadText(t *testing.T) {
	t.Parallel()
	bad := "secret\xff"
	for name, r := range map[string]hook.ContainerRequest{
		"value": {Env: map[string]string{"A": bad}}, "key": {PodLabels: map[string]string{bad: ""}}, "nested": {Resources: &hook.Resources{CPUs: bad}},
	} {
		if _, err := r.Encode(); !errors.Is(err, hook.ErrText) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeAnswers(t *testing.T) {
	t.Parallel()
	types := hooktest.New(t)
	encode := func(name string, tree map[string]any) []byte {
		m := types.Message(name)
		hooktest.Set(m, tree)
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	raw := encode("PodSandboxHookResponse", map[string]any{"labels": map[string]string{"a": "b"}, "annotations": map[string]string{"c": "d"},
		"cgroup_parent": "/x", "resources": resourcesTree()})
	pod, err := hook.DecodePodAnswer(raw)
	if diff := cmp.Diff(hook.PodAnswer{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, CgroupParent: "/x",
		Resources: resources()}, pod); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	want := hook.ContainerAnswer{Annotations: map[string]string{"c": "d"}, Resources: resources(), PodCgroupParent: "/x", Env: map[string]string{"A": "B"}}
	raw = encode("ContainerResourceHookResponse", map[string]any{"container_annotations": map[string]string{"c": "d"}, "pod_cgroup_parent": "/x",
		"container_resources": resourcesTree(), "container_envs": map[string]string{"A": "B"}})
	got, err := hook.DecodeContainerAnswer(raw)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	// What a later version adds is skipped; pieces of one message are merged.
	raw = protowire.AppendVarint(protowire.AppendTag(raw, 99, protowire.VarintType), 1)
	raw = append(raw, encode("ContainerResourceHookResponse", map[string]any{"container_resources": map[string]any{"cpu_shares": int64(77)}})...)
	want.Resources.Shares = 77
	got, err = hook.DecodeContainerAnswer(raw)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestDecodeIsBounded(t *testing.T) {
	t.Parallel()
	many := bytes.Repeat([]byte{0x0a, 0}, 10001)
	if _, err := hook.DecodePodAnswer(many); !errors.Is(err, hook.ErrBounds) {
		t.Errorf("error = %v", err)
	}
	if _, err := hook.DecodePodAnswer(many[:20000]); err != nil {
		t.Error(err)
	}
	deep := bytes.Repeat([]byte{0x22, 0}, 10001) // resources in ten thousand pieces stay one
	if a, err := hook.DecodePodAnswer(deep); err != nil || a.Resources == nil {
		t.Error(err)
	}
}

// Not parallel: it counts the process's allocations.
func TestDecodeAllocatesWithTheContent(t *testing.T) {
	deep := bytes.Repeat([]byte{0x22, 0}, 10001)
	if n := testing.AllocsPerRun(100, func() { _, _ = hook.DecodePodAnswer(deep) }); n > 20 {
		t.Errorf("%v allocations for one empty resource block", n)
	}
	request := hook.ContainerRequest{Pod: hook.Pod{Name: "web"}, Resources: &hook.Resources{Shares: 2}, Env: map[string]string{"A": "B", "C": "D"}}
	if n := testing.AllocsPerRun(100, func() { _, _ = request.Encode() }); n > 30 {
		t.Errorf("%v allocations for a request", n)
	}
}

// FuzzAnswers holds our reader against protobuf's on any bytes: what one refuses the other does, and both read the same.
func FuzzAnswers(f *testing.F) {
	types := hooktest.New(f)
	for name, tree := range map[string]map[string]any{
		"PodSandboxHookResponse":        {"labels": map[string]string{"a": "b"}, "cgroup_parent": "/x", "resources": resourcesTree()},
		"ContainerResourceHookResponse": {"container_envs": map[string]string{"a": "b"}, "container_resources": resourcesTree()},
	} {
		m := types.Message(name)
		hooktest.Set(m, tree)
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Add([]byte{0x0b, 0x08, 1, 0x0c})
	f.Add([]byte{0x22, 4, 0x30, 1, 0x0a, 0})
	f.Add([]byte{0x0a, 7, 0x0a, 1, 'a', 0x08, 1, 0x12, 0}) // a map's key twice, the second time a number
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod, err := hook.DecodePodAnswer(raw)
		want := types.Message("PodSandboxHookResponse")
		compare(t, raw, err, want, func() map[string]any {
			return tree(map[string]any{"labels": pod.Labels, "annotations": pod.Annotations, "cgroup_parent": pod.CgroupParent}, "resources", pod.Resources)
		})
		c, err := hook.DecodeContainerAnswer(raw)
		want = types.Message("ContainerResourceHookResponse")
		compare(t, raw, err, want, func() map[string]any {
			return tree(map[string]any{"container_annotations": c.Annotations, "container_envs": c.Env, "pod_cgroup_parent": c.PodCgroupParent}, "container_resources", c.Resources)
		})
	})
}

func compare(t *testing.T, raw []byte, err error, want proto.Message, got func() map[string]any) {
	t.Helper()
	if errors.Is(err, hook.ErrBounds) {
		return
	}
	theirs, ok := unmarshal(raw, want)
	if !ok {
		return
	}
	if (err == nil) != (theirs == nil) {
		t.Fatalf("%x: ours %v, protobuf %v", raw, err, theirs)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(hooktest.Tree(want.ProtoReflect()), got()); diff != "" {
		t.Fatalf("%x (-protobuf +ours):\n%s", raw, diff)
	}
}

// unmarshal is protobuf's, which in v1.36 panics on a map entry of a dynamic message whose key comes a second time with another wire
// type: such bytes have no answer to compare with, and ours has been read by now without a panic.
func unmarshal(raw []byte, m proto.Message) (refused error, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
		}
	}()
	return proto.Unmarshal(raw, m), true
}

// tree leaves out what is empty, as protobuf's reflection does.
func tree(m map[string]any, name string, r *hook.Resources) map[string]any {
	if r != nil {
		var pages []map[string]any
		for _, h := range r.Hugepages {
			pages = append(pages, tree(map[string]any{"page_size": h.Size, "limit": h.Limit}, "", nil))
		}
		m[name] = tree(map[string]any{
			"cpu_period": r.Period, "cpu_quota": r.Quota, "cpu_shares": r.Shares, "memory_limit_in_bytes": r.Memory, "oom_score_adj": r.OOMScoreAdj,
			"cpuset_cpus": r.CPUs, "cpuset_mems": r.Mems, "hugepage_limits": pages, "unified": r.Unified, "memory_swap_limit_in_bytes": r.Swap,
		}, "", nil)
	}
	for key, v := range m {
		switch v := v.(type) {
		case string:
			if v == "" {
				delete(m, key)
			}
		case int64:
			if v == 0 {
				delete(m, key)
			}
		case uint64:
			if v == 0 {
				delete(m, key)
			}
		case map[string]string:
			if len(v) == 0 {
				delete(m, key)
			}
		case []map[string]any:
			if len(v) == 0 {
				delete(m, key)
			}
		}
	}
	return m
}
