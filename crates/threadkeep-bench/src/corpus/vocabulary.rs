//! The words of the corpus, common and rare as in real text.

use crate::text::{Chance, WORDS};

/// Words of prose: 2^16.
const PROSE_OCTAVES: usize = 16;
/// What identifiers are made of: the 2^13 most common words.
const PIECE_OCTAVES: usize = 13;
/// Words like `the` make no identifiers.
const SMALL: usize = 80;
/// Identifiers: 2^18.
pub(super) const NAME_OCTAVES: usize = 18;
/// Words of two characters: 2^13.
const HAN_OCTAVES: usize = 13;

/// The most common words first, in about their real order.
const SMALL_WORDS: &str = "the to of and a in is that it for this on with we be not are as i you from an have so but can or if \
    at by was will now all it's let when need has which should no then them also there does don't just only one use what its \
    more do see they because into how any before after still same";

const ONSETS: [&str; 32] = [
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "cl", "cr", "dr",
    "fl", "gr", "pl", "pr", "sc", "sh", "sp", "st", "th", "tr",
];
const RIMES: [&str; 32] = [
    "a", "e", "i", "o", "u", "an", "ar", "at", "el", "en", "er", "et", "ic", "in", "ing", "ion", "is", "it", "le",
    "on", "or", "ot", "ound", "um", "un", "ure", "us", "ate", "ed", "est", "ive", "ly",
];

/// Common characters, of which words of two are made besides the real ones.
const HAN: &str = "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切院让识候带导争运";
const CHINESE: &str = "我们 问题 代码 测试 文件 这个 可以 需要 函数 修改 错误 运行 使用 因为 所以 如果 检查 数据 查询 用户 请求 返回 结果 \
    配置 更新 添加 删除 实现 支持 搜索 索引 线程 提交 分支 版本 编译 失败 通过 性能 内存 缓存 接口 参数 类型 变量 方法 模块 目录 路径 \
    日志 服务 数据库 服务器 客户端 单元测试 时间 已经 没有 现在 一个 下面 然后 首先 其他 重新";
const JAPANESE: &str = "ファイル テスト エラー コード 関数 修正 確認 実行 結果 問題 設定 追加 削除 更新 検索 索引 変更 データ サーバー ユーザー \
    リクエスト メッセージ スレッド ブランチ コミット バージョン 失敗 成功 性能 メモリ キャッシュ 引数 戻り値 変数 型 実装 必要 場合 原因 \
    調査 処理 対応 今回 現在 次 前 後 全て 一部 ログ パス ディレクトリ 東京 京都";

/// All the words.
#[derive(Debug)]
pub(super) struct Vocabulary {
    prose: Vec<String>,
    chinese: Vec<String>,
    japanese: Vec<String>,
}

/// A rank below 2^octaves by Zipf's law: each octave of ranks comes equally often.
pub(super) fn zipf(chance: &mut Chance, octaves: usize) -> usize {
    let number = chance.number();
    let octave = (usize::try_from(number >> 40).unwrap_or_default() * octaves) >> 24;
    let start = 1_usize << octave;
    start - 1 + (usize::try_from(number & 0xffff_ffff).unwrap_or_default() & (start - 1))
}

/// One of several.
pub(super) fn pick<'a>(chance: &mut Chance, of: &[&'a str]) -> &'a str {
    of.get(chance.below(of.len())).copied().unwrap_or_default()
}

impl Vocabulary {
    pub(super) fn new() -> Self {
        let real = SMALL_WORDS.split_ascii_whitespace().chain(WORDS.split_ascii_whitespace());
        let mut prose: Vec<String> = real.map(str::to_owned).collect();
        let mut chance = Chance::new(0x70_726f_7365);
        while prose.len() < 1 << PROSE_OCTAVES {
            prose.push(invented(&mut chance));
        }
        let characters: Vec<char> = HAN.chars().collect();
        let mut chinese: Vec<String> = CHINESE.split_ascii_whitespace().map(str::to_owned).collect();
        let mut japanese: Vec<String> = JAPANESE.split_ascii_whitespace().map(str::to_owned).collect();
        while chinese.len() < 1 << HAN_OCTAVES {
            let two =
                |chance: &mut Chance| (0..2).filter_map(|_| characters.get(chance.below(characters.len()))).collect();
            chinese.push(two(&mut chance));
            if japanese.len() < chinese.len() / 2 {
                japanese.push(two(&mut chance));
            }
        }
        Self { prose, chinese, japanese }
    }

    /// The words of prose, the most common first.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.prose.iter().map(String::as_str)
    }

    /// The words of both other languages that are not invented.
    pub(super) fn real_words() -> impl Iterator<Item = &'static str> {
        let both = CHINESE.split_ascii_whitespace().zip(JAPANESE.split_ascii_whitespace());
        both.flat_map(|(chinese, japanese)| [chinese, japanese])
    }

    /// A word of prose.
    pub(super) fn word(&self, chance: &mut Chance) -> &str {
        at(&self.prose, zipf(chance, PROSE_OCTAVES))
    }

    pub(super) fn chinese(&self, chance: &mut Chance) -> &str {
        at(&self.chinese, zipf(chance, HAN_OCTAVES))
    }

    pub(super) fn japanese(&self, chance: &mut Chance) -> &str {
        at(&self.japanese, zipf(chance, HAN_OCTAVES - 1))
    }

    /// The pieces of an identifier, which depend on its rank alone: one for a common one, up to four for a rare one.
    pub(super) fn pieces(&self, rank: usize) -> impl Iterator<Item = &str> {
        let mut chance = Chance::new(0x6e61_6d65 ^ ((rank as u64) << 20));
        let most = if rank < 128 { 1 } else { 4 };
        let count = 1 + chance.below(most);
        (0..count).map(move |_| at(&self.prose, SMALL + zipf(&mut chance, PIECE_OCTAVES)))
    }
}

fn at(words: &[String], rank: usize) -> &str {
    words.get(rank).map(String::as_str).unwrap_or_default()
}

/// A word that nobody knows but could say.
fn invented(chance: &mut Chance) -> String {
    let mut word = String::new();
    for _ in 0..2 + chance.below(5) / 3 {
        word.push_str(pick(chance, &ONSETS));
        word.push_str(pick(chance, &RIMES));
    }
    word
}
