//! Clocks, rounds and quantiles.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// The CPU time that this process has used, on all of its threads, in seconds.
#[expect(clippy::cast_precision_loss, reason = "seconds and nanoseconds of a process fit")]
pub fn cpu_now() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// What one side of a comparison took.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Every call's time by the wall clock, in seconds.
    pub wall: Vec<f64>,
    /// The median call of each round, by the wall clock.
    pub round_wall: Vec<f64>,
    /// The CPU time of each round, per call.
    pub round_cpu: Vec<f64>,
}

impl Samples {
    /// Makes the calls of one round. What they give is dropped after the clocks have stopped.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn round<T>(&mut self, calls: usize, call: &mut dyn FnMut() -> Result<T>) -> Result<()> {
        let mut given = Vec::with_capacity(calls);
        let mut wall = Vec::with_capacity(calls);
        let cpu = cpu_now();
        for _ in 0..calls {
            let start = Instant::now();
            given.push(call()?);
            wall.push(start.elapsed().as_secs_f64());
        }
        self.round_cpu.push((cpu_now() - cpu) / count(calls));
        self.round_wall.push(quantile(&wall, 500));
        self.wall.append(&mut wall);
        Ok(())
    }

    /// Makes calls with time between them that is spent busily and not counted.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn paused<T>(&mut self, calls: usize, pause: Duration, call: &mut dyn FnMut() -> Result<T>) -> Result<()> {
        for _ in 0..calls {
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            let given = call()?;
            self.wall.push(start.elapsed().as_secs_f64());
            drop(given);
        }
        Ok(())
    }

    /// Adds the rounds of another.
    pub fn add(&mut self, mut other: Self) {
        self.wall.append(&mut other.wall);
        self.round_wall.append(&mut other.round_wall);
        self.round_cpu.append(&mut other.round_cpu);
    }

    /// The median call by the wall clock.
    pub fn p50(&self) -> f64 {
        quantile(&self.wall, 500)
    }

    /// The 99th percentile of the calls by the wall clock.
    pub fn p99(&self) -> f64 {
        quantile(&self.wall, 990)
    }

    /// The CPU time of a call: the median of the rounds.
    pub fn cpu(&self) -> f64 {
        quantile(&self.round_cpu, 500)
    }
}

/// The number of inputs that [`take_turns`] uses up on each side, its round to warm up included.
pub const fn inputs(rounds: usize, calls: usize) -> usize {
    (rounds + 1) * calls
}

/// Measures both sides round by round, so that what the machine does meanwhile meets both alike. A first round is not counted.
///
/// # Errors
/// The first error of a call.
pub fn take_turns<A, B>(
    rounds: usize,
    calls: usize,
    mut one: impl FnMut() -> Result<A>,
    mut other: impl FnMut() -> Result<B>,
) -> Result<(Samples, Samples)> {
    Samples::default().round(calls, &mut one)?;
    Samples::default().round(calls, &mut other)?;
    let (mut first, mut second) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        if round % 2 == 0 {
            first.round(calls, &mut one)?;
            second.round(calls, &mut other)?;
        } else {
            second.round(calls, &mut other)?;
            first.round(calls, &mut one)?;
        }
    }
    Ok((first, second))
}

/// Every actor makes its own calls, all at once; gives the time until the last has ended, and that of each call, in seconds.
///
/// # Errors
/// The first error of a call.
pub fn at_once<A: Send, I: Send>(
    actors: Vec<A>,
    inputs: Vec<Vec<I>>,
    call: impl Fn(&mut A, I) -> Result<()> + Sync,
) -> Result<(f64, Vec<f64>)> {
    let start = Barrier::new(actors.len() + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut actor, inputs) in actors.into_iter().zip(inputs) {
            let (start, call) = (&start, &call);
            threads.push(scope.spawn(move || -> Result<Vec<f64>> {
                start.wait();
                let mut calls = Vec::with_capacity(inputs.len());
                for input in inputs {
                    let begun = Instant::now();
                    call(&mut actor, input)?;
                    calls.push(begun.elapsed().as_secs_f64());
                }
                Ok(calls)
            }));
        }
        start.wait();
        let begun = Instant::now();
        let mut calls = Vec::new();
        for thread in threads {
            calls.append(&mut thread.join().map_err(|_| "an actor ended badly")??);
        }
        Ok((begun.elapsed().as_secs_f64(), calls))
    })
}

/// Keeps this thread, and those that it starts, on one CPU while it lives: waking another thread is then a switch and no
/// message to a sleeping CPU, whose time on a virtual machine depends on what else runs there.
#[derive(Debug)]
pub struct OneCpu {
    #[cfg(target_os = "linux")]
    before: rustix::thread::CpuSet,
}

#[cfg(target_os = "linux")]
impl OneCpu {
    /// Stays on the CPU that it is on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stay() -> Result<Self> {
        let before = rustix::thread::sched_getaffinity(None)?;
        let mut here = rustix::thread::CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &here)?;
        Ok(Self { before })
    }
}

#[cfg(target_os = "linux")]
impl Drop for OneCpu {
    fn drop(&mut self) {
        // If this fails the run goes on where it is.
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
    }
}

#[cfg(not(target_os = "linux"))]
impl OneCpu {
    /// Does nothing here.
    ///
    /// # Errors
    /// None.
    pub fn stay() -> Result<Self> {
        Ok(Self {})
    }
}

/// The median of the rounds' ratios.
pub fn ratio(ours: &[f64], floor: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect();
    quantile(&ratios, 500)
}

/// A quantile by its rank in thousandths; 0 of nothing.
pub fn quantile(values: &[f64], thousandths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last * thousandths + 500) / 1000).copied().unwrap_or_default()
}

/// A count as a divisor.
#[expect(clippy::cast_precision_loss, reason = "no count here is that large")]
pub fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::{quantile, ratio, take_turns};

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!([0, 500, 1000].map(|rank| quantile(&values, rank)), [1.0, 3.0, 5.0]);
        assert_eq!(quantile(&[], 500), 0.0);
        assert_eq!(ratio(&[2.0, 9.0, 4.0], &[1.0, 1.0, 1.0]), 4.0);
    }

    #[test]
    fn both_sides_get_the_same_number_of_calls() {
        let (mut one, mut other) = (0, 0);
        let call = |count: &mut i32| {
            *count += 1;
            Ok(*count)
        };
        let counted = take_turns(3, 5, || call(&mut one), || call(&mut other)).unwrap();
        assert_eq!((one, other), (20, 20));
        assert_eq!((counted.0.wall.len(), counted.1.wall.len()), (15, 15));
    }
}
