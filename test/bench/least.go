// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// The load of handlers without koord-nri: how far two plugins that do nothing lie apart, and what the runtime sees of one that answers as
// koord-nri must and does the bare system calls where koord-nri must do them. No ratio of handlers can be told from the first, and none that keeps the promise be
// below the second.

// twoNoopsAndMust takes each place once in three rounds. noop and again are the same program; must answers CreateContainer with as much
// as koord-nri does, and makes the system calls of StartContainer and UpdateContainer in these calls, on the container itself.
var twoNoopsAndMust = contest{names: []string{"noop", "again", "must"}, places: func(round int) map[string]string {
	out := map[string]string{}
	for i, name := range inTurn([3]string{"noop", "again", "must"}, round) {
		out[name] = fmt.Sprintf("%02d", 4+i)
	}
	return out
}}

// leastRounds is how many rounds twoNoopsAndMust needs for every plugin to have had every place.
const leastRounds = 3

func (b *bench) least(ctx context.Context, r *report) error {
	results, err := b.hold(ctx, r, twoNoopsAndMust, leastRounds)
	if err != nil {
		return err
	}
	noop := results["noop"]
	for _, e := range []metrics.Event{metrics.EventRunPodSandbox, metrics.EventCreateContainer, metrics.EventStartContainer, metrics.EventUpdateContainer} {
		for _, c := range ran(noop) {
			for _, q := range []float64{0.5, 0.99} {
				_, how := ratioRPC(e, q, results["must"][c], noop[c])
				r.tell(fmt.Sprintf("RPC %s at %d, p%g, must / noop", e, c, q*100), "%s", how)
			}
		}
	}
	tellBare(r, results["must"])
	for _, e := range rpcEvents {
		for _, c := range ran(noop) {
			for _, q := range []float64{0.5, 0.99} {
				_, how := ratioRPC(e, q, results["again"][c], noop[c])
				r.tell(fmt.Sprintf("RPC %s at %d, p%g, again / noop", e, c, q*100), "%s", how)
			}
		}
	}
	noteHandlers(r, twoNoopsAndMust, results)
	return nil
}
