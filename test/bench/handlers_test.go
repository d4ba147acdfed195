// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// meeting is a runtime that answers a CreateContainer when n of them are under way.
type meeting struct {
	runtimeapi.RuntimeServiceClient
	all sync.WaitGroup
}

func (m *meeting) CreateContainer(context.Context, *runtimeapi.CreateContainerRequest, ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	m.all.Done()
	m.all.Wait()
	return &runtimeapi.CreateContainerResponse{}, nil
}

// A figure "at 64" is one only if a wave holds 64 requests at the same time, and the count of them says so.
func TestWave(t *testing.T) {
	t.Parallel()
	const n = 64
	m := &meeting{}
	m.all.Add(n)
	calls := &stopwatch{RuntimeServiceClient: m}
	err := parallel(t.Context(), n, n, func(ctx context.Context, _ int) error {
		_, err := calls.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{})
		return err
	})
	if got := calls.most(); err != nil || got != n {
		t.Errorf("most under way: %d, %v", got, err)
	}
	if got := calls.most(); got != 0 {
		t.Errorf("most under way after it: %d", got)
	}
}

// What bare has measured belongs to the concurrency at whose time it began; what came before the first does not count.
func TestReadBare(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "took")
	if err := os.WriteFile(path, []byte("StartContainer 5 1000\nCreateContainer 10 2000\nStartContainer 25 3000\nStartContainer 30 4000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	into := map[int]*measured{}
	for _, c := range concurrencies() {
		into[c] = &measured{bare: map[string]sample{}, rounds: shares{}}
	}
	if err := readBare(path, concurrencies(), []time.Time{time.Unix(0, 10), time.Unix(0, 20), time.Unix(0, 30)}, into); err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]sample{{"CreateContainer": {2e-6}}, {"StartContainer": {3e-6}}, {"StartContainer": {4e-6}}} {
		got := into[concurrencies()[i]].bare
		if len(got) != len(want) {
			t.Errorf("at %d: %v, want %v", concurrencies()[i], got, want)
		}
		for event, s := range want {
			if !slices.Equal(got[event], s) {
				t.Errorf("at %d: %s %v, want %v", concurrencies()[i], event, got[event], s)
			}
		}
	}
	if err := os.WriteFile(path, []byte("StartContainer 40 100000\nStartContainer 41 300000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readBare(path, []int{64}, []time.Time{time.Unix(0, 40)}, into); err != nil {
		t.Fatal(err)
	}
	if got, all := into[64].rounds["StartContainer"], into[64].bare["StartContainer"]; !slices.Equal(got, []float64{1, 0.5}) || len(all) != 3 {
		t.Errorf("of the second round: %v of %v", got, all)
	}
	if err := os.WriteFile(path, []byte("StartContainer 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if readBare(path, []int{64}, []time.Time{time.Unix(0, 0)}, into) == nil {
		t.Error("no error of half a line")
	}
}

// A round's share is of that round alone, and a round in which an event did not happen has none.
func TestRounds(t *testing.T) {
	t.Parallel()
	event := metrics.EventUpdateContainer.String()
	bounds := []float64{handlerGoal, 1}
	s := shares{}
	for _, counts := range [][]uint64{{3, 4}, {0, 0}, {1, 1}} {
		s.ofHistograms(histograms{event: {bounds: bounds, counts: counts, count: counts[1]}})
	}
	if got := s.line(event); got != "75.0, 100.0 %" {
		t.Errorf("%q", got)
	}
	r := newReport("handlers")
	tellRounds(r, map[int]*measured{64: {rounds: s}}, map[int]*measured{64: {rounds: shares{"UpdateContainer/LS": {0.5, 1}}}})
	if got := r.table(); !strings.Contains(got, "inside UpdateContainer at 64, ≤ 200 µs by round") || !strings.Contains(got, "50.0, 100.0 %") {
		t.Errorf("%s", got)
	}
}

// Over three rounds koord-nri and both plugins that do nothing have each place once, over six each order comes once; bare is always last, so that it
// finds nothing to write that ours would have had to.
func TestPlaces(t *testing.T) {
	t.Parallel()
	orders := map[string]bool{}
	for first := 0; first < 6; first += 3 {
		had := map[string]bool{}
		for round := first; round < first+3; round++ {
			at := oursNoopBare.places(round)
			if at["ours"] != plainIndex || at["bare"] <= max(at["ours"], at[idler], at[sharer]) {
				t.Errorf("round %d: %v", round, at)
			}
			order := []string{"ours", idler, sharer}
			slices.SortFunc(order, func(a, b string) int { return strings.Compare(at[a], at[b]) })
			for i, name := range order {
				had[fmt.Sprint(name, i)] = true
			}
			orders[fmt.Sprint(order)] = true
		}
		if len(had) != 9 {
			t.Errorf("rounds from %d on: %v", first, had)
		}
	}
	if len(orders) != 6 {
		t.Errorf("%v", orders)
	}
	if _, err := parse([]string{"-rounds", "4"}, io.Discard); err == nil {
		t.Error("four rounds, in which a plugin has one place more often than another, are taken")
	}
}

// Over its rounds each plugin of least has each place once, and the runtime's metrics are told apart.
func TestLeastPlaces(t *testing.T) {
	t.Parallel()
	had := map[string]bool{}
	for round := range leastRounds {
		labels := twoNoopsAndMust.labels(round)
		if len(labels) != len(twoNoopsAndMust.names) {
			t.Errorf("round %d: %v", round, labels)
		}
		for label, name := range labels {
			had[name+" "+label] = true
		}
	}
	if len(had) != leastRounds*len(twoNoopsAndMust.names) {
		t.Errorf("%v", had)
	}
	if got := oursNoopBare.labels(1); got["04-noop"] != sharer || got["05-koord-rt"] != "ours" || got["06-noop"] != idler || got["08-noop"] != "bare" {
		t.Errorf("%v", got)
	}
}

// TestAt: -at takes some of the concurrencies, and none that there is not.
func TestAt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{"1,10,64": {1, 10, 64}, "64,10": {10, 64}, "64": {64}} {
		if o, err := parse([]string{"-at", text, "-out", ""}, io.Discard); err != nil || !slices.Equal(o.at, want) {
			t.Errorf("-at %s: %v, %v", text, o.at, err)
		}
	}
	for _, text := range []string{"", "2", "1,", "1,1", "1 10"} {
		if o, err := parse([]string{"-at", text, "-out", ""}, io.Discard); err == nil {
			t.Errorf("-at %q: %v", text, o.at)
		}
	}
	if _, err := parse([]string{"-at", "64"}, io.Discard); err == nil {
		t.Error("the table is written without some of its lines")
	}
}
