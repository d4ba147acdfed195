// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooktest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// published are the fields of RuntimeHookService's messages with their numbers (facts 5.2).
var published = map[string]string{
	"PodSandboxMetadata":     "name 1, uid 2, namespace 3, attempt 4",
	"PodSandboxHookRequest":  "pod_meta 1, runtime_handler 2, labels 3, annotations 4, cgroup_parent 5, overhead 6, resources 7",
	"PodSandboxHookResponse": "labels 1, annotations 2, cgroup_parent 3, resources 4",
	"LinuxContainerResources": "cpu_period 1, cpu_quota 2, cpu_shares 3, memory_limit_in_bytes 4, oom_score_adj 5, cpuset_cpus 6, cpuset_mems 7, " +
		"hugepage_limits 8, unified 9, memory_swap_limit_in_bytes 10",
	"HugepageLimit":     "page_size 1, limit 2",
	"ContainerMetadata": "name 1, attempt 2, id 3",
	"ContainerResourceHookRequest": "pod_meta 1, container_meta 2, container_annotations 3, container_resources 4, pod_resources 5, pod_annotations 6, " +
		"pod_labels 7, pod_cgroup_parent 8, container_envs 9",
	"ContainerResourceHookResponse": "container_annotations 1, container_resources 2, pod_cgroup_parent 3, container_envs 4",
}

func TestNumbersAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	types := New(t)
	if n := types.file.Messages().Len(); n != len(published) {
		t.Errorf("%d messages, want %d", n, len(published))
	}
	for name, want := range published {
		fields := types.Message(name).Descriptor().Fields()
		var got []string
		for i := range fields.Len() {
			got = append(got, fmt.Sprintf("%s %d", fields.Get(i).Name(), fields.Get(i).Number()))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// text and number append a field as the encoding has it (https://protobuf.dev/programming-guides/encoding/).
func text(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func number(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// Each kind of field on the wire: what was encoded by hand is the tree, and the tree is encoded to the same bytes.
func TestWire(t *testing.T) {
	t.Parallel()
	types := New(t)
	pair := func(key, value string) string { return string(text(text(nil, 1, key), 2, value)) }
	page := string(number(text(nil, 1, "2MB"), 2, 1<<63))
	minus := ^uint64(997) // -998 in two's complement, ten bytes long: int64, not sint64
	for name, c := range map[string]struct {
		message string
		raw     []byte
		tree    map[string]any
	}{
		"empty":   {"PodSandboxHookResponse", nil, map[string]any{}},
		"numbers": {"LinuxContainerResources", number(number(nil, 1, 100000), 5, minus), map[string]any{"cpu_period": int64(100000), "oom_score_adj": int64(-998)}},
		"uint32":  {"ContainerMetadata", number(text(nil, 1, "app"), 2, 1<<32-1), map[string]any{"name": "app", "attempt": uint32(1<<32 - 1)}},
		"map": {"LinuxContainerResources", text(text(nil, 9, pair("a", "")), 9, pair("memory.high", "7")),
			map[string]any{"unified": map[string]string{"a": "", "memory.high": "7"}}},
		"list": {"LinuxContainerResources", text(text(nil, 8, page), 8, ""),
			map[string]any{"hugepage_limits": []map[string]any{{"page_size": "2MB", "limit": uint64(1 << 63)}, {}}}},
		"message": {"ContainerResourceHookRequest", text(text(text(nil, 1, ""), 2, string(text(nil, 3, "id-1"))), 9, pair("KEY", "é")),
			map[string]any{"pod_meta": map[string]any{}, "container_meta": map[string]any{"id": "id-1"}, "container_envs": map[string]string{"KEY": "é"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := types.Message(c.message)
			if err := proto.Unmarshal(c.raw, read); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.tree, Tree(read)); diff != "" || len(read.GetUnknown()) > 0 {
				t.Errorf("unknown %x, tree (-want +got):\n%s", read.GetUnknown(), diff)
			}
			made := types.Message(c.message)
			Set(made, c.tree)
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(made)
			if err != nil {
				t.Fatal(err)
			}
			if string(raw) != string(c.raw) {
				t.Errorf("encoded to %x, want %x", raw, c.raw)
			}
		})
	}
}
