// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import "time"

// longestPause bounds how much later something is seen than it comes.
const longestPause = 250 * time.Millisecond

// Pause is the time between a check that took so long and the next one: four times that, so that who waits uses a fifth of a processor at most,
// which an emulated machine has not to spare; no less than least, and a quarter of a second at most.
func Pause(took, least time.Duration) time.Duration { return min(max(4*took, least), longestPause) }
