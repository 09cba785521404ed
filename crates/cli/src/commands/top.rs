//! `leasehold top`: a live screen of locks, holders, countdowns, waiters and deadlocks.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use leasehold_api::{Cluster, EdgeKind, Graph, LockPage};
use leasehold_client::{ListQuery, Transport};
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::Answered;
use super::run::by_signal;
use super::views::{mode, state};
use crate::args::{Global, Top};
use crate::asking::Server;
use crate::failure::{EXIT_USAGE, Failure};
use crate::output::{counted, short, shown};

const LOCKS_SHOWN: u64 = 200;
const WAITS_SHOWN: usize = 8;
/// Two lines of head, a rule and a head above the locks, a rule above those who wait.
const HEIGHT_BESIDES: usize = 5;
/// The interval at which countdowns and keys are looked at.
const TICK: Duration = Duration::from_millis(100);
const HEAD: [&str; 7] = ["LOCK", "STATE", "OWNER", "MODE", "TOKEN", "LEFT", "WAITERS"];
/// Of the columns, those that a narrow screen has room for.
const NARROW: [usize; 4] = [0, 2, 5, 6];
const NARROW_BELOW: u16 = 90;
/// As wide as a drawing for a pipe is at least.
const ONCE_WIDTH: usize = 110;

/// The state of the screen.
struct View {
    prefix: String,
    locks: LockPage,
    cluster: Cluster,
    graph: Graph,
    looked: Instant,
    /// The reason why the last look failed, if it did.
    trouble: Option<String>,
    table: TableState,
    /// The text typed after `/` so far.
    typing: Option<String>,
    colors: bool,
    /// Drawn once, for a terminal without keys.
    is_once: bool,
}

/// The contents of the screen, for programs.
#[derive(Serialize)]
struct Once<'a> {
    cluster: &'a Cluster,
    locks: &'a LockPage,
    graph: &'a Graph,
}

pub(crate) async fn run(global: &Global, args: &Top) -> Answered {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.once && !is_terminal {
        let failure = Failure::new(EXIT_USAGE, "a live screen needs a terminal");
        return Err(
            failure.next("--once draws it as text, and `leasehold watch` follows what happens")
        );
    }
    let server = &Server::connect(global, Transport::Http).await?;
    let mut view = View::look(server, &args.prefix).await?;
    if args.once {
        let once = Once { cluster: &view.cluster, locks: &view.locks, graph: &view.graph };
        if server.out.is_json() {
            server.out.json(&once);
        } else {
            view.is_once = true;
            let width = server.out.width().unwrap_or_else(|| view.whole_width());
            server.out.text(&text(&mut view, width));
        }
        return Ok(0);
    }
    let mut told_to_go = signal(SignalKind::terminate())?;
    let mut terminal = ratatui::try_init()?;
    let done = tokio::select! {
        done = live(server, args, &mut terminal, &mut view) => done.map(|()| 0),
        _ = told_to_go.recv() => Ok(by_signal(SignalKind::terminate().as_raw_value())),
    };
    ratatui::restore();
    done
}

async fn live(
    server: &Server,
    args: &Top,
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
) -> Result<(), Failure> {
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        while event::poll(Duration::ZERO)? {
            if !view.typed(&event::read()?) {
                return Ok(());
            }
        }
        if view.looked.elapsed() >= args.every {
            view.look_again(server).await;
        }
        tokio::time::sleep(TICK).await;
    }
}

/// The screen as plain text.
fn text(view: &mut View, width: usize) -> String {
    let rows: usize = view.locks.locks.iter().map(|lock| lock.holders.len()).sum();
    let height = rows.max(2) + view.waiting().len().min(WAITS_SHOWN) + HEIGHT_BESIDES;
    let of = |size: usize| u16::try_from(size).unwrap_or(u16::MAX).min(1000);
    let (width, height) = (of(width), of(height));
    let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height))
        .unwrap_or_else(|never| match never {});
    let drawn = terminal.draw(|frame| view.draw(frame)).unwrap_or_else(|never| match never {});
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| drawn.buffer[(x, y)].symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

impl View {
    async fn look(server: &Server, prefix: &str) -> Result<View, Failure> {
        let (locks, cluster, graph) = look(server, prefix).await?;
        Ok(View {
            prefix: prefix.into(),
            locks,
            cluster,
            graph,
            looked: Instant::now(),
            trouble: None,
            table: TableState::default(),
            typing: None,
            colors: server.out.colors,
            is_once: false,
        })
    }

    /// Reads the state anew; the old one stays on the screen if the server cannot be reached.
    async fn look_again(&mut self, server: &Server) {
        match look(server, &self.prefix).await {
            Ok((locks, cluster, graph)) => {
                (self.locks, self.cluster, self.graph) = (locks, cluster, graph);
                self.trouble = None;
            }
            Err(failure) => self.trouble = Some(failure.said),
        }
        self.looked = Instant::now();
    }

    /// False when it is time to leave.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "there are many keys, and few mean anything"
    )]
    fn typed(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return true };
        if key.kind != KeyEventKind::Press {
            return true;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        if let Some(mut typing) = self.typing.take() {
            match key.code {
                KeyCode::Enter => self.filter(typing),
                KeyCode::Esc => {}
                KeyCode::Backspace => {
                    typing.pop();
                    self.typing = Some(typing);
                }
                KeyCode::Char(c) => {
                    typing.push(c);
                    self.typing = Some(typing);
                }
                _ => self.typing = Some(typing),
            }
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('/') => self.typing = Some(String::new()),
            KeyCode::Char('g') => self.filter(String::new()),
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            _ => {}
        }
        true
    }

    fn filter(&mut self, prefix: String) {
        self.prefix = prefix;
        // Due at once.
        self.looked = self.looked.checked_sub(Duration::from_secs(3600)).unwrap_or(self.looked);
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let waits = u16::try_from(self.waiting().len().min(WAITS_SHOWN)).unwrap_or(u16::MAX);
        let [head, locks, waiters, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(4),
            Constraint::Length(waits + 1),
            Constraint::Length(u16::from(!self.is_once)),
        ])
        .areas(frame.area());
        self.draw_head(frame, head);
        self.draw_locks(frame, locks);
        self.draw_waiters(frame, waiters);
        self.draw_foot(frame, foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let cluster = &self.cluster;
        let first = format!(
            "leasehold  {}  {}  epoch {}  revision {}",
            shown(&cluster.name),
            shown(&cluster.store),
            cluster.epoch,
            self.locks.revision
        );
        let second = format!(
            "{} held, {}, {}, last token {}{}",
            counted(cluster.locks_held, "lock"),
            counted(cluster.sessions, "session"),
            counted(cluster.waiters, "waiter"),
            cluster.last_fencing_token,
            cluster.grace.as_ref().map(|_| ", recovery grace active").unwrap_or_default()
        );
        let lines = vec![
            Line::styled(first, self.style(Color::Reset).add_modifier(Modifier::BOLD)),
            Line::from(second),
        ];
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_locks(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let passed = u64::try_from(self.looked.elapsed().as_millis()).unwrap_or(u64::MAX);
        let columns: &[usize] =
            if area.width < NARROW_BELOW { &NARROW } else { &[0, 1, 2, 3, 4, 5, 6] };
        let rows: Vec<Row<'_>> = self
            .locks
            .locks
            .iter()
            .flat_map(|lock| {
                lock.holders.iter().enumerate().map(move |(at, holder)| (lock, at, holder))
            })
            .map(|(lock, at, holder)| {
                let left = holder.expires_in_ms.saturating_sub(passed);
                let color = match left {
                    0..1000 => Color::Red,
                    1000..5000 => Color::Yellow,
                    _ => Color::Reset,
                };
                let only_first = |text: String| if at == 0 { text } else { String::new() };
                let cells = [
                    only_first(shown(&lock.lock)),
                    only_first(state(lock.state).into()),
                    shown(&holder.owner_id),
                    mode(holder.mode, holder.permits),
                    holder.fencing_token.to_string(),
                    short(left),
                    only_first(lock.waiters_total.to_string()),
                ];
                Row::new(columns.iter().map(|&at| cells[at].clone())).style(self.style(color))
            })
            .collect();
        let widths = [
            Constraint::Fill(3),
            Constraint::Length(10),
            Constraint::Fill(2),
            Constraint::Length(10),
            Constraint::Length(16),
            Constraint::Length(6),
            Constraint::Length(7),
        ];
        let (head, widths) =
            (columns.iter().map(|&at| HEAD[at]), columns.iter().map(|&at| widths[at]));
        let title = match self.prefix.as_str() {
            "" => " locks ".to_string(),
            prefix => format!(" locks {}… ", shown(prefix)),
        };
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(self.style(Color::Reset).add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
            .block(Block::new().borders(Borders::TOP).title(title));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    /// So wide that no name is cut.
    fn whole_width(&self) -> usize {
        let len = |text: &str| text.chars().count();
        let holders = self.locks.locks.iter().flat_map(|lock| &lock.holders);
        let lock = self.locks.locks.iter().map(|lock| len(&lock.lock)).max().unwrap_or(0);
        let owner = holders.map(|holder| len(&holder.owner_id)).max().unwrap_or(0);
        let waits = self.waiting().iter().map(|line| len(line)).max().unwrap_or(0);
        // Three parts of what the other columns leave are for the lock, two for the owner.
        ONCE_WIDTH.max(waits).max(lock * 2 + owner * 3 + 60)
    }

    fn waiting(&self) -> Vec<String> {
        let circles = self.graph.cycles.iter().map(|cycle| {
            let who: Vec<String> = cycle.iter().map(|step| shown(&step.waiter)).collect();
            format!("deadlock: {}", who.join(" -> "))
        });
        let waits =
            self.graph.edges.iter().filter(|edge| edge.kind == EdgeKind::Waits).map(|edge| {
                let name = |node: &str| shown(node.split_once(':').map_or(node, |(_, name)| name));
                let blockers: Vec<String> =
                    edge.blockers.iter().map(|owner| shown(owner)).collect();
                let (who, what) = (name(&edge.from), name(&edge.to));
                format!(
                    "{who} waits {} for {what} behind {}",
                    short(edge.since_ms),
                    blockers.join(", ")
                )
            });
        circles.chain(waits).collect()
    }

    fn draw_waiters(&self, frame: &mut Frame<'_>, area: Rect) {
        let lines: Vec<Line<'_>> = self
            .waiting()
            .into_iter()
            .map(|line| {
                let color = if line.starts_with("deadlock") { Color::Red } else { Color::Reset };
                Line::styled(line, self.style(color))
            })
            .collect();
        let title = if lines.is_empty() { " no waiters " } else { " waiting " };
        let block = Block::new().borders(Borders::TOP).title(title);
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let (text, color) = match (&self.typing, &self.trouble) {
            (Some(typing), _) => (format!("/{typing}"), Color::Reset),
            (None, Some(trouble)) => (trouble.clone(), Color::Red),
            (None, None) => ("q leave   up/down move   / filter   g all".into(), Color::DarkGray),
        };
        frame.render_widget(Paragraph::new(text).style(self.style(color)), area);
    }

    fn style(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }
}

async fn look(server: &Server, prefix: &str) -> Result<(LockPage, Cluster, Graph), Failure> {
    let query = ListQuery {
        prefix: Some(prefix.into()),
        page_size: Some(LOCKS_SHOWN),
        ..ListQuery::default()
    };
    let api = server.client.api();
    let locks = server.ask(api.list(&query)).await?;
    let cluster = server.ask(api.cluster()).await?;
    let graph = server.ask(api.graph()).await?;
    Ok((locks, cluster, graph))
}
