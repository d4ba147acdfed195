// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strconv"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// MinNetworkLimit in bit/s is the smallest limit that is taken: less, often a slip in the unit, would stop the pod.
const MinNetworkLimit = 64_000

// ParseNetworkQOS reads networkQOS: {"ingressLimit":"50M","egressLimit":"20M"}, quantities in bit/s. A limit that is not given is
// none; other fields are not looked at.
func ParseNetworkQOS(s string) (NetworkQOS, error) {
	var wire struct {
		IngressLimit, EgressLimit *strategy.Quantity
	}
	if err := decode(s, &wire); err != nil {
		return NetworkQOS{}, err
	}
	var out NetworkQOS
	for _, f := range [...]struct {
		name string
		q    *strategy.Quantity
		to   *int64
	}{{"ingressLimit", wire.IngressLimit, &out.IngressLimit}, {"egressLimit", wire.EgressLimit, &out.EgressLimit}} {
		if f.q == nil {
			continue
		}
		n, err := f.q.Value()
		switch {
		case err != nil:
			return NetworkQOS{}, fmt.Errorf("%s: %w", f.name, err)
		case n < MinNetworkLimit:
			return NetworkQOS{}, fmt.Errorf("%s: %s bit/s would stop the pod, want at least %d", f.name, strconv.FormatInt(n, 10), MinNetworkLimit)
		}
		*f.to = n
	}
	return out, nil
}
