// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verdicts are those of a report's figures that have a goal, by goal.
func verdicts(r *report) map[string]string {
	out := map[string]string{}
	for _, f := range r.figures {
		if f.goal != "" {
			out[f.goal] = f.verdict
		}
	}
	return out
}

func TestJudgeLatencies(t *testing.T) {
	t.Parallel()
	direct, a, b, c := ways()
	for name, tc := range map[string]struct {
		seconds     map[string]sample
		near, far   string
		lastFigures string
	}{
		"both met":    {map[string]sample{wayDirect: direct, wayRelay: a, wayOurs: a, wayUpstream: c}, "ok", "ok", "10.0"},
		"both missed": {map[string]sample{wayDirect: direct, wayRelay: a, wayOurs: c, wayUpstream: b}, "missed", "missed", "0.2"},
		"no upstream": {map[string]sample{wayDirect: direct, wayRelay: a, wayOurs: a}, "ok", "unclear", "not measured"},
	} {
		r := &report{}
		judgeLatencies(r, "List", tc.seconds, true)
		got := verdicts(r)
		if got["≤ 2"] != tc.near || got["≥ 4"] != tc.far || len(got) != 2 {
			t.Errorf("%s: verdicts %v, want %s, %s", name, got, tc.near, tc.far)
		}
		if last := r.figures[len(r.figures)-1].value; !strings.HasPrefix(last, tc.lastFigures) {
			t.Errorf("%s: upstream to ours = %s, want %s", name, last, tc.lastFigures)
		}
		told := &report{}
		judgeLatencies(told, "Version", tc.seconds, false)
		if got := verdicts(told); len(got) != 0 {
			t.Errorf("%s: a call without goals is judged: %v", name, got)
		}
	}
}

func TestJudgeCreates(t *testing.T) {
	t.Parallel()
	direct, _, _, c := ways()
	slow, same := &side{name: wayOurs}, &side{name: wayOurs}
	base := &side{name: wayDirect}
	for i := range calls {
		slow.seconds[i], same.seconds[i], base.seconds[i] = c, direct, direct
	}
	for want, s := range map[string]*side{"missed": slow, "ok": same} {
		r := &report{}
		judgeCreates(r, s, base)
		if got := verdicts(r); got["≤ 1.03"] != want || len(got) != 1 || len(r.figures) != len(calls) {
			t.Errorf("verdicts %v in %d figures, want %s", got, len(r.figures), want)
		}
	}
	slow.name = wayUpstream
	r := &report{}
	judgeCreates(r, slow, base)
	if got := verdicts(r); len(got) != 0 {
		t.Errorf("upstream is judged: %v", got)
	}
}

// Each way is at each place of a round equally often.
func TestLoadOrder(t *testing.T) {
	t.Parallel()
	all := []*way{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}}
	seen := map[string]int{}
	for round := -1; round < 7; round++ {
		for place, w := range loadOrder(all, round) {
			seen[fmt.Sprint(w.name, place)]++
		}
	}
	for k, n := range seen {
		if n != 2 || len(seen) != 16 {
			t.Errorf("%s %d times, %d of 16 places", k, n, len(seen))
		}
	}
}

func TestUnread(t *testing.T) {
	t.Parallel()
	data, err := unread{}.Marshal([]byte("ab"))
	if err != nil || string(data.Materialize()) != "ab" {
		t.Errorf("sends %q, %v", data.Materialize(), err)
	}
	n := 0
	reply := mem.BufferSlice{mem.SliceBuffer("abc"), mem.SliceBuffer("de")}
	if err := (unread{}).Unmarshal(reply, &n); err != nil || n != 5 {
		t.Errorf("counts %d, %v", n, err)
	}
	if _, err := (unread{}).Marshal("ab"); err == nil {
		t.Error("a string was sent")
	}
	if err := (unread{}).Unmarshal(reply, "x"); err == nil {
		t.Error("a reply went into a string")
	}
}

// reader answers reads; wrong breaks one of them.
type reader struct {
	runtimeapi.RuntimeServiceClient
	ids   []string
	wrong string
}

func (r reader) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	out := &runtimeapi.ListContainersResponse{}
	for _, id := range r.ids {
		out.Containers = append(out.Containers, &runtimeapi.Container{Id: id})
	}
	if r.wrong == "list" {
		out.Containers = out.Containers[1:]
	}
	return out, nil
}

func (r reader) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	id := in.ContainerId
	if r.wrong == "status" {
		id = "x"
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id}}, nil
}

func (r reader) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	if r.wrong == "version" {
		return nil, context.DeadlineExceeded
	}
	return &runtimeapi.VersionResponse{}, nil
}

func TestReadLoad(t *testing.T) {
	t.Parallel()
	ids := []string{"1", "2", "3"}
	of := func(wrong string) *readLoad {
		c := reader{ids: ids, wrong: wrong}
		return &readLoad{ids: ids, clients: map[string][]runtimeapi.RuntimeServiceClient{"a": slices.Repeat([]runtimeapi.RuntimeServiceClient{c}, 4)}}
	}
	rate, each, err := of("").run(t.Context(), "a", 500*time.Millisecond)
	if err != nil || len(each) == 0 || rate != float64(len(each))/0.5 {
		t.Errorf("%g calls/s, %d calls, %v", rate, len(each), err)
	}
	for _, wrong := range []string{"list", "status", "version"} {
		if _, _, err := of(wrong).run(t.Context(), "a", time.Minute); err == nil {
			t.Errorf("a wrong %s went unseen", wrong)
		}
	}
}
